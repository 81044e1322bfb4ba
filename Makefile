# Each target brings what it needs: a virtual environment with the locked packages, and Debian's
# redis-server, prosody, ejabberd, chromium, tmux, profanity and nginx where they are missing and apt can be used. Nothing
# else is written outside this folder. ARGS goes to the program: make run ARGS="--workers 3".

venv := .venv
bin := $(venv)/bin
pip := $(bin)/python -m pip install -qq --no-input --disable-pip-version-check --require-virtualenv
# Locks name the extras: otherwise pip takes the newest version of a package that another one needs with extras, and
# the check of hashes fails as soon as a newer one is published.
compile := $(bin)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-strip-extras \
	--no-header --no-annotate --no-emit-index-url

# Programs start in two thirds of the time where Python may keep what it has compiled: tests start hundreds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup run test check alerts bench fuzz live upgrade corona fleet shards matrices partial peers attacks imports load experiments storms faults units servers containers sbom first-run words lock wheel release docs screenshots
.DELETE_ON_ERROR:

setup: $(venv)/run.stamp

run: setup
	@scripts/need redis-server prosody openssl || true # `coronet up` names what it cannot replace
	@exec $(bin)/coronet up --state .coronet --allow-private $(ARGS)

# Three at once on two cores: while a product starts, or is waited for, the other two have the cores to themselves.
test: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl chromium ip:iproute2 tmux profanity nginx:nginx-light ejabberdctl:ejabberd systemd-analyze:systemd
	@$(bin)/pytest -n 3 --dist worksteal $(ARGS)

check: $(venv)/dev.stamp
	@$(bin)/ruff check --quiet
	@$(bin)/ruff format --quiet --check
	@$(bin)/mypy --no-error-summary
	@$(bin)/mypy --no-error-summary compose/bootstrap.py compose/trim.py
	@$(bin)/codespell --skip '*/vendor/*,*/fuzz/corpus/*,*/search_quality/*,*/catalogs/*,*/transcripts/*,*/commands/verb_synonyms.py,*/commands/days_and_times.py,settings_parser.py,query_tokens.py,query_parser.py,word_analysis.py,test_word_analysis.py,test_query_expansion.py,test_query_parser.py,*/dialogue/search_commands.py,*/replies/search_texts.py,test_languages.py' --ignore-words-list tage,nd,ordner,vor,hace,tabel,ist,caf,fro,titel,intervall,alle,ore,pyhton service bots workers tests compose docs scripts Makefile *.md
	@$(bin)/djlint --quiet --lint service/console/templates
	@$(bin)/yamllint --strict compose
	@$(bin)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose/compose*.yaml
	@$(bin)/hadolint compose/Dockerfile compose/*/Dockerfile
	@$(bin)/python -m pip check
	@$(bin)/pytest tests/architecture

# Prometheus's own check of its settings and the alert rules, and the rules' unit tests. Installs Debian's prometheus (90 MB).
alerts:
	@scripts/need promtool:prometheus
	@promtool check config compose/prometheus/prometheus.yml
	@promtool test rules compose/prometheus/alerts_test.yml

bench: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl
	@$(bin)/python -m tests.bench.bench_fanout
	@$(bin)/python -m tests.bench.bench_bots
	@$(bin)/python -m tests.bench.bench_commands
	@$(bin)/python -m tests.bench.bench_feeds
	@$(bin)/python -m tests.bench.bench_tls
	@$(bin)/python -m tests.bench.bench_allocation_solver
	@$(bin)/python -m tests.bench.bench_clash
	@$(bin)/python -m tests.bench.bench_enqueue
	@$(bin)/python -m tests.bench.bench_discovery
	@$(bin)/python -m tests.bench.bench_search
	@$(bin)/python -m tests.bench.bench_search_quality --json
	@$(bin)/python -m tests.bench.bench_console
	@$(bin)/python -m tests.bench.bench_checks
	@$(bin)/python -m tests.bench.bench_logins
	@$(bin)/python -m tests.bench.bench_peers
	@$(bin)/python -m tests.bench.bench_upkeep
	@$(bin)/python -m tests.bench.bench_channel_memory
	@$(bin)/python -m tests.bench.bench_idle # takes eight minutes: every channel has to be polled once

# Five minutes of one publisher with 20 feeds, three workers and two people: how long they wait, and what the ledger says.
live: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl
	@$(bin)/python -m tests.live $(ARGS)

# A rolling restart from the previous version (ARGS="--from REVISION") to this one under traffic, and the audit of all
# deliveries. Two minutes, JSON; fails if an entry is lost, doubled or out of order.
upgrade: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl
	@$(bin)/python -m tests.live.upgrade $(ARGS)

# Eight workers and 200 channels at public addresses: polling sets, budget, publishers' wishes and failures, a kill, by
# the publishers' journal and the console's API. Six minutes, JSON; fails if a claim does not hold.
corona: $(venv)/dev.stamp
	@scripts/need redis-server ip:iproute2
	@$(bin)/python -m tests.live.corona --json $(ARGS)

# A hundred nodes in four processes with 20,000 channels: what their control plane costs, beside its forecast. A quarter
# of an hour, JSON; fails if a figure is not within 25 % of the forecast.
fleet: $(venv)/dev.stamp
	@scripts/need redis-server
	@$(bin)/python -m tests.live.fleet --json $(ARGS)

# 200,000 subscriptions on a Redis Cluster of six, a burst, balancers killed at every step and a primary: seven minutes, JSON.
shards: $(venv)/dev.stamp
	@scripts/need redis-server
	@$(bin)/python -m tests.live.shards $(ARGS)

# Queries of separate processes for one pair, a hundredfold within a minute, on a cluster and on one Redis: six minutes, JSON.
matrices: $(venv)/dev.stamp
	@scripts/need redis-server
	@$(bin)/python -m tests.live.matrices $(ARGS)

# Five workers under loads that lead to each strategy of partial lookup, and the death of one: two minutes, JSON.
partial: $(venv)/dev.stamp
	@scripts/need redis-server
	@$(bin)/python -m tests.live.partial_lookup $(ARGS)

# Sixteen workers in four places, 100 to 200 ms apart: where the bases of their polls come from. Three minutes, JSON.
peers: $(venv)/dev.stamp
	@scripts/need redis-server
	@$(bin)/python -m tests.live.peers $(ARGS)

# What attacks by pushes, slow hosts and large lists cost other people: the delay of their news, memory, and loops' lag.
# Eight minutes, JSON; fails if a bound does not hold.
attacks: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl ip:iproute2
	@$(bin)/python -m tests.live.attacks pushes --json $(ARGS)
	@$(bin)/python -m tests.live.attacks slow-sites --json $(ARGS)
	@$(bin)/python -m tests.live.attacks slow-sites --mode network --json $(ARGS)
	@$(bin)/python -m tests.live.opml_attack --json $(ARGS)

# 10,000 feeds imported in chat, and 10,000 at the console, with one worker, while programs are killed: minutes, answer times.
# Six minutes, JSON; fails if a bound does not hold.
imports: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl
	@$(bin)/python -m tests.live.imports $(ARGS)

# 5,000 channels, 500 online users, 50 polls and 500 deliveries per second, a tenth of the publishers hostile: what it costs
# and how long it takes. Sixteen minutes, JSON; fails if a claim does not hold.
load: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl ip:iproute2
	@$(bin)/python -m tests.live.load $(ARGS)

# What the papers claim, other readers, and ours, in simulated time: writes six pages of docs/experiments, those of the
# papers and of schedulers. Half an hour.
experiments: $(venv)/dev.stamp
	@$(bin)/coronet simulate report $(ARGS)

# A thousand fleets of node protocols through loss, delay, cuts, crashes and joins; every run of the tests has fifty.
# Fifteen thousand histories of key groups that split and merge under readers, writers and dying balancers; else six hundred.
# The store's whole contract on a Redis Cluster as well. A webhook that fails for a minute, instead of ten seconds.
storms: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl
	@$(bin)/pytest -n 2 --dist worksteal -m "storms or not storms" tests/property/test_fleet.py tests/property/test_clash_moves.py tests/contract tests/integration/workers/test_key_group_balancer.py tests/e2e/test_reading_elsewhere.py $(ARGS)

# All fault tests, also those that take minutes.
faults: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl ip:iproute2 ejabberdctl:ejabberd
	@$(bin)/pytest -n 2 --dist loadfile -m faults tests/faults $(ARGS)

# The console behind nginx and Caddy, at the root and under a path, and `coronet setup` with Prosody and ejabberd, all with
# the snippets of the guides. Two minutes.
servers: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl tmux nginx:nginx-light caddy ejabberdctl:ejabberd
	@$(bin)/pytest -m "servers or not servers" tests/integration/console/test_behind_proxies.py tests/e2e/test_setup.py $(ARGS)

# The systemd units under a systemd of the test's own, in namespaces: needs root. Half a minute.
units: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl systemd-analyze:systemd unshare:util-linux
	@$(bin)/pytest -n 0 -m systemd tests/e2e/test_systemd_service.py $(ARGS)

# The compose stack, alone, on a Redis Cluster and with Prometheus, built and run by podman in namespaces of its own: an
# entry, a kill of each container, limits, an alert. Ten minutes; ARGS="-k cluster" is a part of it. Needs root. Base images
# are pulled, or made where no registry can be reached; the user's cache keeps them in coronet-containers.
containers: $(venv)/containers.stamp
	@[ "$$(id -u)" -eq 0 ] || { echo "make containers needs root: podman makes network namespaces." >&2; exit 1; }
	@scripts/need podman runc /usr/lib/podman/netavark:netavark /usr/lib/podman/aardvark-dns:aardvark-dns catatonit \
		debootstrap iptables unshare:util-linux ip:iproute2
	@$(bin)/python -m tests.containers $(ARGS)

# The four ways in which the guides start Coronet (make run, coronet up, coronet serve, containers), each in a bare Debian
# made by debootstrap, to the first notification in chat. Ten minutes, JSON; needs root. ARGS="'make run'" is one of them.
first-run: $(venv)/containers.stamp
	@[ "$$(id -u)" -eq 0 ] || { echo "make first-run needs root: it mounts file systems." >&2; exit 1; }
	@scripts/need debootstrap unshare:util-linux git
	@$(bin)/python -m tests.first_run $(ARGS)

# What the wheel and the image of Coronet consist of, as CycloneDX JSON in build/sbom. The image's part needs root and podman.
sbom: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
sbom: $(venv)/containers.stamp
	@[ "$$(id -u)" -eq 0 ] || { echo "make sbom needs root: podman mounts the image." >&2; exit 1; }
	@scripts/need podman runc /usr/lib/podman/netavark:netavark debootstrap
	@$(bin)/python scripts/sbom.py wheel build/sbom/coronet.cdx.json
	@$(bin)/python -m tests.containers.sbom build/sbom/coronet-image.cdx.json

fuzz: $(venv)/dev.stamp
	@$(bin)/python -m tests.fuzz parse $(ARGS)
	@$(bin)/python -m tests.fuzz identity $(ARGS)
	@$(bin)/python -m tests.fuzz page $(ARGS)

# What the bot says, gathered for translation: new sentences stand empty in bots/catalogs, and the tests name them.
words: errors := BadUrl BadQuery HostBlocked PortRefused LimitReached HostNotFound Unreachable TlsFailed BadHttp EmptyBody
words: $(venv)/dev.stamp
	@$(bin)/pybabel --quiet extract --no-default-keywords --keywords "gettext ngettext:1,2 gettext_noop $(errors)" --no-wrap \
		--add-location file --project Coronet --copyright-holder "" --output $(venv)/coronet.pot bots service
	@for language in de fr es it pt nl pl; do \
		$(bin)/pybabel --quiet update --domain coronet --input-file $(venv)/coronet.pot --output-dir bots/catalogs \
			--locale $$language --no-wrap --no-fuzzy-matching --ignore-obsolete --ignore-pot-creation-date \
			--init-missing || exit 1; \
	done

# The wheel of this folder, in dist: what pipx or uv installs.
wheel: $(venv)/run.stamp
	@$(bin)/hatchling build --target wheel --directory dist

# The sdist and the wheel of the last commit in dist/: reproducible, checked, and run from a bare environment. What the wheel
# consists of is in build/sbom.
release: $(venv)/publish.stamp
	@scripts/need redis-server prosody openssl
	@PATH="$(CURDIR)/$(bin):$$PATH" scripts/build-release dist
	@$(bin)/twine check --strict dist/*
	@$(bin)/check-wheel-contents dist/*.whl
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(bin)/python scripts/sbom.py wheel build/sbom/coronet.cdx.json
	@$(bin)/python -m tests.live.installed_wheel dist/*.whl

# The documentation as a site in build/site, with all links between its pages checked.
docs: $(venv)/publish.stamp
	@NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet --clean

# The pictures in docs/images, taken from a running product.
screenshots: $(venv)/dev.stamp
	@scripts/need redis-server prosody openssl chromium
	@$(bin)/python -m tests.live.screenshots docs/images

# Newer versions are taken only where they are asked for: make lock ARGS="--upgrade-package aiohttp".
# pip does not take html-clean for html_clean, as trafilatura writes the extra of lxml.
lock: $(venv)/dev.stamp
	$(compile) $(ARGS) --extra embedded --extra experiments --extra otel --extra dev pyproject.toml -o requirements-dev.lock
	$(compile) --constraint requirements-dev.lock --extra embedded pyproject.toml -o requirements.lock
	$(compile) --constraint requirements-dev.lock --group publish -o requirements-publish.lock
	$(compile) --constraint requirements-dev.lock --group containers -o requirements-containers.lock
	printf 'hatchling\neditables\n' | $(compile) --constraint requirements-dev.lock - -o requirements-build.lock
	sed -i 's/^lxml\[html-clean\]/lxml[html_clean]/' requirements.lock requirements-dev.lock

# Five locks: what runs; what builds it (a checkout's editable install and the image's first stage
# use it, the image's last stage does not); everything, for tests; what only `make release` and
# `make docs` need; and what only `make containers` needs. Their versions agree.
$(venv)/run.stamp: requirements.lock requirements-build.lock pyproject.toml
	@echo "Setting up $(venv): once, for about a minute …"
	@scripts/venv $(venv)
	@$(pip) --require-hashes --only-binary :all: -r requirements.lock -r requirements-build.lock
	@$(pip) --no-deps --no-build-isolation --editable .
	@touch $@

$(venv)/dev.stamp: $(venv)/run.stamp requirements-dev.lock
	@echo "Adding what tests and checks need to $(venv): once, for about a minute …"
	@$(pip) --require-hashes --only-binary :all: -r requirements-dev.lock
	@touch $@

$(venv)/publish.stamp: $(venv)/dev.stamp requirements-publish.lock
	@echo "Adding what releases and the documentation need to $(venv) …"
	@$(pip) --require-hashes --only-binary :all: -r requirements-publish.lock
	@touch $@

$(venv)/containers.stamp: $(venv)/dev.stamp requirements-containers.lock
	@$(pip) --require-hashes --only-binary :all: -r requirements-containers.lock
	@touch $@
