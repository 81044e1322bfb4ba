"""Parser of setting values: `quiet 22:00-07:00 mon-fri`, `every 2 hours`, `mute=on`.

Most functions return the changed settings, or a reply that explains why the value is invalid. Days, times and intervals
are parsed by :mod:`bots.commands.days_and_times`.
"""

import re
from typing import Final

import msgspec

from bots.commands.days_and_times import parse_digest, parse_interval_s, parse_quiet_hours
from bots.commands.parser import MAX_ENTRY_COUNT, InitialSettings
from bots.commands.verb_synonyms import ALL_WORDS, VERB_OF
from bots.dialogue.reply import Reply, failure, misunderstanding
from bots.i18n.translator import LANGUAGES, Translator, find_language, normalize_words
from bots.replies import entry_templates
from bots.replies.help_texts import help_text
from bots.replies.settings_texts import invalid_setting_text, languages_text, unknown_variables_text
from service.feeds.parsing.field_limits import NAME_CHARS
from service.feeds.parsing.html_text import one_line
from service.users.filters import MAX_RULES, FilterRule, parse_rule
from service.users.numeric_conditions import parse_numeric_condition
from service.users.preferences import FOR_ALL, FULL_TEXT, MAX_INTERVAL_S, MAX_TEXT_CHARS, MIN_INTERVAL_S, Preferences
from service.users.time_zones import find_time_zones
from service.users.user_settings import UserSettings

ON_WORDS: Final = frozenset(
    (
        *("on", "yes", "true", "an", "ein", "ja", "oui", "activer", "activé", "sí", "si", "activar", "sì", "attiva"),
        *("sim", "ativar", "aan", "tak", "włącz", "wlacz"),
    )
)
OFF_WORDS: Final = frozenset(
    (
        *("off", "none", "no", "never", "stop", "aus", "nein", "nie", "non", "jamais", "arrêt", "nunca", "desactivar"),
        *("mai", "disattiva", "não", "nao", "desativar", "uit", "nee", "nooit", "nigdy", "wyłącz", "wylacz"),
    )
)
NEW_WORDS: Final = frozenset(
    ("new", "neu", "nouveau", "nouvelle", "nuevo", "nueva", "nuovo", "nuova", "novo", "nova", "nieuw", "nowy", "nowe")
)

AT_ONCE_WORDS: Final = frozenset(
    (
        *("right away", "at once", "sofort", "tout de suite", "aussitot", "immediatement", "de inmediato", "enseguida"),
        *("subito", "immediatamente", "imediatamente", "de imediato", "meteen", "direct", "od razu", "natychmiast"),
    )
)

_MAX_TITLE_CHARS: Final = 120
_EXAMPLE_NUMBER: Final = 3
"""The subscription number used in examples, unless the command names a subscription."""
_DEFAULT: Final = frozenset(
    (
        *("default", "usual", "standard", "défaut", "predeterminado", "predefinito", "padrão", "padrao", "predefinido"),
        *("standaard", "domyślne", "domyslne"),
    )
)
_FULL: Final = frozenset(
    (
        *("full", "voll", "ganz", "vollständig", "complet", "entier", "intégral", "completo", "entero", "intero"),
        *("integral", "inteiro", "volledig", "heel", "pełny", "pelny", "cały", "caly"),
    )
)
SETTING_OF_NAME: Final = {
    **dict.fromkeys(("mute", "muted", "stumm", "muet", "silenciar", "silenzia", "dempen", "wycisz"), "mute"),
    **dict.fromkeys(("title", "name", "titel", "titre", "título", "titulo", "nombre", "nom"), "title"),
    **dict.fromkeys(("titolo", "nome", "naam", "tytuł", "tytul", "nazwa"), "title"),
    **dict.fromkeys(("edits", "edit", "corrections", "änderungen", "modifications", "ediciones"), "edits"),
    **dict.fromkeys(("correzioni", "modifiche", "correções", "edições", "wijzigingen", "poprawki", "zmiany"), "edits"),
    **dict.fromkeys(("format", "template", "vorlage", "modèle", "plantilla", "formato"), "format"),
    **dict.fromkeys(("modello", "modelo", "opmaak", "sjabloon", "szablon"), "format"),
    **dict.fromkeys(("proof", "latest", "beweis", "neueste", "preuve", "derniers", "prueba", "últimos"), "proof"),
    **dict.fromkeys(("ultimi", "ultime", "últimas", "laatste", "nieuwste", "ostatnie", "najnowsze"), "proof"),
    **dict.fromkeys(("when", "condition", "wenn", "bedingung", "quand", "cuando", "condición"), "when"),
    **dict.fromkeys(("quando", "condizione", "condição", "wanneer", "voorwaarde", "kiedy", "gdy", "warunek"), "when"),
    **dict.fromkeys(("interval", "every", "intervall", "intervalle", "intervalo"), "interval"),
    **dict.fromkeys(("intervallo", "interwał", "interwal"), "interval"),
    **dict.fromkeys(("text", "length", "länge", "texte", "longueur", "texto", "longitud"), "text"),
    **dict.fromkeys(("testo", "lunghezza", "comprimento", "tekst", "lengte", "długość", "dlugosc"), "text"),
    **dict.fromkeys(("images", "image", "pictures", "bilder", "bild", "imágenes", "imagenes", "imagen"), "images"),
    **dict.fromkeys(("folder", "ordner", "dossier", "carpeta", "cartella", "pasta", "map", "katalog"), "folder"),
    **{word: verb for word, verb in VERB_OF.items() if verb == "digest"},
    **dict.fromkeys(("immagini", "immagine", "imagens", "imagem", "afbeeldingen", "afbeelding", "obrazy"), "images"),
}
_IS_ALLOW: Final = {
    **dict.fromkeys(("allow", "only", "nur", "erlauben", "seulement", "autoriser", "solo", "sólo", "permitir"), True),
    **dict.fromkeys(("consenti", "só", "apenas", "somente", "alleen", "toestaan", "tylko"), True),
    **dict.fromkeys(("deny", "not", "without", "block", "hide", "ohne", "sans", "refuser", "sin", "denegar"), False),
    **dict.fromkeys(("senza", "escludi", "sem", "excluir", "zonder", "niet", "bez", "ukryj"), False),
}
_REMOVE_WORDS: Final = frozenset(("remove", "delete"))
_PRESENCE: Final = frozenset(
    (
        *("presence", "away", "präsenz", "anwesenheit", "présence", "presencia", "presenza", "presença"),
        *("aanwezigheid", "obecność", "obecnosc"),
    )
)
_AUTOMATIC: Final = frozenset(
    ("auto", "automatic", "automatisch", "automatique", "automático", "automatico", "automatyczny", "automatycznie")
)
_LENGTH = re.compile(r"[0-9]{1,4}")
_NUMBER = re.compile(r"#?([0-9]{1,3})")


def set_quiet_hours(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the quiet hours changed as ``words`` say, or a reply that explains the error.

    ``words`` can be hours and days, a word for "off", which removes the quiet hours, or ``presence``. With
    ``presence``, messages wait while the user is away.
    """
    if words.lower() in OFF_WORDS:
        return msgspec.structs.replace(user_settings, quiet=None, heeds_presence=False)
    if words.lower() in _PRESENCE:
        return msgspec.structs.replace(user_settings, heeds_presence=True)
    hours = parse_quiet_hours(words)
    if hours is None:
        return failure(_not_understood(words, help_text("quiet", translator), translator))
    return msgspec.structs.replace(user_settings, quiet=hours)


def set_digest(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the digest schedule changed as ``words`` say, or a reply that explains the error.

    A word for "off" removes the schedule.
    """
    schedule = None
    if words.lower() not in OFF_WORDS and (schedule := parse_digest(words)) is None:
        return failure(_not_understood(words, help_text("digest", translator), translator))
    return msgspec.structs.replace(user_settings, digest=schedule)


def _not_understood(words: str, explanation: str, translator: Translator) -> str:
    """Return a text that says that ``words`` were not understood.

    ``explanation`` is the line that explains the command; it is appended.
    """
    sentence = translator.gettext("I don't understand “{words}” here.", words=one_line(words, 60))
    return f"{sentence}\n{explanation}"


def set_time_zone(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the time zone changed to the one in ``words``, or a reply that explains the error."""
    zones, quoted = find_time_zones(words), one_line(words, 60)
    if len(zones) == 1:
        return msgspec.structs.replace(user_settings, zone=zones[0])
    if not zones:
        return failure(
            translator.gettext(
                "I don't know the time zone “{words}”. Name a large city in it, e.g. `timezone Berlin`, or use the "
                "zone's full name, e.g. `timezone America/New_York`.",
                words=quoted,
            )
        )
    commands = translator.format_alternatives([f"`timezone {name}`" for name in zones])
    return failure(
        translator.gettext(
            "There's more than one “{words}”. Which do you mean: {commands}?", words=quoted, commands=commands
        )
    )


def set_language(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with the language changed to the one in ``words``, or a reply that explains the error."""
    is_automatic = words.lower() in _AUTOMATIC
    language = "" if is_automatic else find_language(words)
    if not language and not is_automatic:
        sentence = translator.gettext("I don't speak “{words}”.", words=one_line(words, 60))
        return failure(f"{sentence} {languages_text(LANGUAGES, translator)}")
    return msgspec.structs.replace(user_settings, language=language)


def set_announcements(user_settings: UserSettings, words: str, translator: Translator) -> UserSettings | Reply:
    """Return the settings with announcements turned on or off as ``words`` say, or a reply that explains the error."""
    word = words.lower()
    if word not in ON_WORDS | OFF_WORDS:
        return misunderstanding(_not_understood(words, help_text("announcements", translator), translator))
    return msgspec.structs.replace(user_settings, announcements=word in ON_WORDS)


def apply_settings(before: Preferences, settings: InitialSettings, translator: Translator) -> Preferences | Reply:
    """Return a copy of ``before`` with ``settings`` applied, or a reply that explains the first error in them."""
    for key, value in settings:
        changed = change_setting(before, key, value, translator)
        if not isinstance(changed, Preferences):
            return changed
        before = changed
    return before


def change_setting(  # noqa: C901, PLR0911, PLR0912 - one arm per key
    before: Preferences, name: str, value: str, translator: Translator, number: int | None = None
) -> Preferences | Reply:
    """Return a copy of ``before`` with one setting changed, or a reply that explains the error.

    ``name`` and ``value`` are as the user typed them. ``number`` is the number of the subscription that the setting is
    for. It is ``FOR_ALL`` if the setting is for all subscriptions, negative if it is for a folder, and None if the user
    is just subscribing.
    """
    key, value = SETTING_OF_NAME.get(name.lower(), ""), value.strip()
    is_default = value.lower() in _DEFAULT
    is_off = value.lower() in OFF_WORDS
    is_on = None if is_default else value.lower() in ON_WORDS
    is_for_several = number is not None and number <= FOR_ALL
    match key:
        case "":
            return failure(
                translator.gettext(
                    "I don't know the setting “{words}”. You can set mute, title, folder, edits, interval, digest, "
                    "format, text, images, latest and when; `help set` explains them.",
                    words=one_line(name, 40),
                )
            )
        case "interval":
            if is_off or is_default or normalize_words(value) in AT_ONCE_WORDS:
                return msgspec.structs.replace(before, interval_s=None if is_default else 0)
            seconds = parse_interval_s(value)
            if seconds is not None and MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
                return msgspec.structs.replace(before, interval_s=seconds)
        case "mute" if is_off or is_on or is_default:
            return msgspec.structs.replace(before, muted=bool(is_on))
        case "edits" if is_off or is_on or is_default:
            return msgspec.structs.replace(before, edits=is_on)
        case "images" if is_off or is_on or is_default:
            return msgspec.structs.replace(before, images=is_on)
        case "text":
            if is_off or is_default or is_on:
                return msgspec.structs.replace(before, text_chars=0 if is_off else None)
            if value.lower() in _FULL:
                return msgspec.structs.replace(before, text_chars=FULL_TEXT)
            if (length := _LENGTH.fullmatch(value)) is not None and int(length[0]) <= MAX_TEXT_CHARS:
                return msgspec.structs.replace(before, text_chars=int(length[0]))
        case "proof":
            if is_off or is_default or is_on:
                return msgspec.structs.replace(before, proof=0 if is_off else None)
            if (count := _NUMBER.fullmatch(value)) is not None and int(count[1]) <= MAX_ENTRY_COUNT:
                return msgspec.structs.replace(before, proof=int(count[1]))
        case "when" if is_for_several:
            return failure(translator.gettext("A condition belongs to one subscription, e.g. `set #3 when < 20`."))
        case "when":
            if is_off or is_default:
                return msgspec.structs.replace(before, when=None)
            if (condition := parse_numeric_condition(value)) is not None:
                return msgspec.structs.replace(before, when=condition)
        case "folder" if is_for_several:
            return failure(translator.gettext("A folder contains single subscriptions, e.g. `set #3 folder News`."))
        case "folder" if is_off or is_default:
            return msgspec.structs.replace(before, folder="")
        case "folder" if (folder := one_line(value, NAME_CHARS)) and not _is_target(folder):
            return msgspec.structs.replace(before, folder=folder)
        case "digest" if number == FOR_ALL:
            return failure(translator.gettext("For all subscriptions, send e.g. `digest daily 08:00`."))
        case "digest" if is_off or (value and is_digest(value)):
            return msgspec.structs.replace(before, digest="off" if is_off else parse_digest(value))
        case "title" if is_for_several:
            return failure(translator.gettext("A title belongs to one subscription, e.g. `set #3 title My news`."))
        case "title" if value:
            title = "" if is_off or is_default else one_line(value, _MAX_TITLE_CHARS)
            return msgspec.structs.replace(before, title=title)
        case "format":
            if is_off or is_default:
                return msgspec.structs.replace(before, template="" if is_off else None)
            template = entry_templates.normalize(value)
            is_valid = "$" in template and entry_templates.is_short_enough(template)
            if unknown := entry_templates.unknown_variables(template):
                return failure(unknown_variables_text(unknown, translator))
            if is_valid:
                return msgspec.structs.replace(before, template=template)
    example = _EXAMPLE_NUMBER if is_for_several else number
    return failure(invalid_setting_text(key, value, translator, number=example))


def _is_target(name: str) -> bool:
    """Return whether ``name`` can't name a folder, because it means a subscription or all of them in commands."""
    return _NUMBER.fullmatch(name) is not None or name.lower() in ALL_WORDS


def is_digest(words: str) -> bool:
    """Return whether ``words`` are a digest schedule, a word for "off" or "default", or empty."""
    return not words or words.lower() in OFF_WORDS | _DEFAULT or parse_digest(words) is not None


def is_setting(words: str) -> bool:
    """Return whether ``words`` begin with the name of a setting, or are empty."""
    return not words or words.split(maxsplit=1)[0].lower() in SETTING_OF_NAME


def is_filter_change(words: str) -> bool:
    """Return whether ``words`` begin like a change of filters, such as `deny`, or are empty."""
    return not words or words.split(maxsplit=1)[0].lower() in _IS_ALLOW.keys() | OFF_WORDS | _REMOVE_WORDS


def change_filters(  # noqa: PLR0911 - one for each error
    rules: tuple[FilterRule, ...], word: str, rest: str, translator: Translator, which: str = "all"
) -> tuple[FilterRule, ...] | Reply:
    """Return the filter rules after one change, or a reply that explains the error.

    To add a rule, ``word`` is ``deny`` or ``allow``, and ``rest`` contains the words of the rule. To remove a rule,
    ``word`` is ``off``, and ``rest`` is the number of the rule, or "" for all rules. ``which`` is what a command
    names to change these rules: `#3`, the name of a folder, or `all`.
    """
    if word in OFF_WORDS | _REMOVE_WORDS:
        removed = _NUMBER.fullmatch(rest)
        if not rest:
            return ()
        if removed is not None and 1 <= int(removed[1]) <= len(rules):
            return tuple(rule for place, rule in enumerate(rules, 1) if place != int(removed[1]))
        return failure(
            translator.gettext(
                "There's no filter with that number. `filter {which}` shows the filters and their numbers.",
                which=which,
            )
        )
    is_allow = _IS_ALLOW.get(word)
    if is_allow is None:
        explanation = help_text("filter", translator)
        if which != "all":
            explanation = explanation.replace("#3", which)
        return misunderstanding(_not_understood(word, explanation, translator))
    if not rest:
        command = f"filter {which} {'allow python' if is_allow else 'deny crypto'}"
        return misunderstanding(
            translator.gettext("Which words should I filter? For example: `{command}`.", command=command)
        )
    rule = parse_rule(rest, allow=is_allow)
    if any((each.allow, each.test) == (rule.allow, rule.test) for each in rules):
        return rules
    if len(rules) < MAX_RULES:
        return (*rules, rule)
    return failure(
        translator.ngettext(
            "You already have {count} filter here, and that's the maximum. A single /regular expression/ can "
            "replace several.",
            "You already have {count} filters here, and that's the maximum. A single /regular expression/ can "
            "replace several.",
            MAX_RULES,
        )
    )
