"""The verbs of commands, their synonyms in each language of the bot, and the emojis that stand for verbs.

:mod:`bots.commands.parser` looks up words and emojis here. The parsers of settings and of times of day define the words
that they recognise themselves.
"""

from typing import Final

_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "subscribe": (
        *("sub", "add", "follow", "abonnieren", "abonniere", "abo", "folgen", "hinzufügen", "abonner", "suivre"),
        *("ajouter", "suscribir", "suscribirse", "suscríbeme", "seguir", "añadir", "iscriviti", "abbonati", "segui"),
        *("aggiungi", "assinar", "inscrever", "subscrever", "adicionar", "abonneren", "abonneer", "volgen", "volg"),
        *("toevoegen", "subskrybuj", "śledź", "dodaj"),
    ),
    "unsubscribe": (
        *("unsub", "remove", "rm", "delete", "unfollow", "abbestellen", "kündigen", "entfernen", "löschen"),
        *("désabonner", "desabonner", "supprimer", "retirer", "desuscribir", "eliminar", "quitar", "borrar"),
        *("disiscriviti", "disdici", "rimuovi", "elimina", "desinscrever", "remover", "excluir", "apagar", "opzeggen"),
        *("afmelden", "verwijderen", "verwijder", "odsubskrybuj", "usuń", "usun"),
    ),
    "list": (
        *("ls", "subscriptions", "feeds", "liste", "abos", "abonnements", "lista", "suscripciones", "elenco"),
        *("iscrizioni", "listar", "assinaturas", "subscrições", "lijst", "abonnementen", "subskrypcje"),
    ),
    "find": (
        *("search", "suche", "suchen", "finde", "finden", "chercher", "cherche", "trouver", "recherche"),
        *("buscar", "busca", "encontrar", "cerca", "trova", "ricerca", "procurar", "procura", "pesquisar", "zoek"),
        *("zoeken", "vind", "vinden", "szukaj", "znajdź", "znajdz", "wyszukaj"),
    ),
    "discover": (
        *("browse", "explore", "entdecken", "entdecke", "stöbern", "découvrir", "decouvrir", "explorer", "parcourir"),
        *("descubrir", "descubre", "explorar", "scopri", "esplora", "descobrir", "ontdekken", "ontdek", "verkennen"),
        *("odkryj", "odkrywaj", "przeglądaj"),
    ),
    "more": (
        *("next", "mehr", "weiter", "plus", "suite", "más", "mas", "siguiente", "altro", "ancora", "mais", "seguinte"),
        *("meer", "verder", "volgende", "więcej", "wiecej", "dalej"),
    ),
    "watch": (
        *("watches", "beobachten", "beobachte", "surveiller", "surveille", "vigilar", "vigila", "sorveglia"),
        *("osserva", "vigiar", "bewaken", "bewaak", "obserwuj"),
    ),
    "unwatch": (),
    "show": (
        *("latest", "zeige", "zeig", "zeigen", "montrer", "montre", "afficher", "affiche", "mostrar", "muestra"),
        *("mostra", "toon", "tonen", "pokaż", "pokaz"),
    ),
    "why": (
        *("explain", "warum", "wieso", "pourquoi", "porqué", "porque", "perché", "perche", "porquê", "waarom"),
        *("dlaczego", "czemu"),
    ),
    "status": ("stats", "zustand", "état", "etat", "estado", "stato", "toestand", "stan"),
    "mute": ("stumm", "muet", "silenciar", "silenzia", "dempen", "wycisz"),
    "unmute": (),
    "quiet": ("silence", "dnd", "ruhe", "ruhezeit", "silencio", "silenzio", "silêncio", "stilte", "cisza"),
    "digest": (
        *("summary", "zusammenfassung", "résumé", "resumen", "riepilogo", "resumo", "samenvatting"),
        "podsumowanie",
    ),
    "timezone": ("tz", "zone", "zeitzone", "fuseau", "zona", "fuso", "tijdzone", "strefa"),
    "language": (*("lang", "sprache", "langue", "idioma", "lengua", "lingua", "língua", "taal", "język", "jezyk"),),
    "announcements": (
        *("announcement", "mitteilungen", "mitteilung", "ankündigungen", "annonces", "annonce", "anuncios", "anuncio"),
        *("avisos", "annunci", "annuncio", "avvisi", "anúncios", "anúncio", "mededelingen", "mededeling"),
        *("ogłoszenia", "ogloszenia"),
    ),
    "invite": (
        *("invitation", "code", "einladung", "invitación", "código", "invito", "codice", "convite", "uitnodiging"),
        *("zaproszenie", "kod"),
    ),
    "export": (*("opml", "exportieren", "exporter", "exportar", "esporta", "exporteren", "exporteer", "eksportuj"),),
    "import": (
        *("importieren", "importiere", "importer", "importe", "importar", "importa", "importeren", "importeer"),
        "importuj",
    ),
    "atom": (),
    "webhook": (),
    "forget": (
        *("forgetme", "vergiss", "vergessen", "oublier", "oublie", "oublie-moi", "olvidar", "olvida", "olvídame"),
        *("dimentica", "dimenticami", "esquecer", "esqueça-me", "vergeet", "vergeten", "zapomnij"),
    ),
    "pause": (
        *("hold", "pausieren", "pausiere", "suspendre", "pausar", "pausa", "sospendi", "pauzeren", "pauzeer"),
        *("pauze", "wstrzymaj", "pauza"),
    ),
    "resume": (
        *("unpause", "continue", "fortsetzen", "fortfahren", "reprendre", "reprends", "reanudar", "continuar"),
        *("riprendi", "riattiva", "retomar", "hervatten", "hervat", "wznów", "wznow"),
    ),
    "set": (
        *("settings", "setting", "einstellen", "einstellungen", "régler", "réglages", "ajustar", "ajustes"),
        *("imposta", "impostazioni", "definir", "configurar", "instellen", "instellingen", "ustaw", "ustawienia"),
    ),
    "filter": (
        *("filters", "filtern", "filtre", "filtrer", "filtres", "filtrar", "filtro", "filtros", "filtra", "filtri"),
        *("filteren", "filtruj", "filtr", "filtry"),
    ),
    "help": (
        *("?", "h", "commands", "hilfe", "befehle", "aide", "commandes", "ayuda", "comandos", "aiuto", "comandi"),
        *("ajuda", "hulp", "opdrachten", "pomoc", "polecenia"),
    ),
    "hello": (
        *("hi", "start", "hallo", "bonjour", "salut", "hola", "ciao", "buongiorno", "olá", "oi", "hoi", "cześć"),
        *("czesc", "hej"),
    ),
    "yes": ("y", "yep", "ok", "ja", "j", "oui", "sí", "si", "vale", "sì", "sim", "tak"),
    "no": ("n", "nope", "nein", "non", "não", "nao", "nee", "nie"),
    "cancel": (
        *("stop", "nevermind", "abbrechen", "stopp", "annuler", "cancelar", "annulla", "annuleren", "annuleer"),
        "anuluj",
    ),
}

VERB_OF: Final = {word: verb for verb, others in _SYNONYMS.items() for word in (verb, *others)}
"""Maps each word with which a command can begin to the verb that the word means. The words are the verbs themselves,
and their synonyms in all languages."""

_MIN_GUESSABLE_CHARS: Final = 4
GUESSABLE_WORDS: Final = sorted(
    word for word in VERB_OF if len(word) >= _MIN_GUESSABLE_CHARS or word in ("sub", "add", "ls")
)
"""Words that an unknown word is compared with, to suggest a command."""

LEAVE: Final = frozenset(
    (
        *("leave", "go away", "part", "geh", "geh weg", "verlassen", "pars", "va-t'en", "quitter", "vete", "salir"),
        *("vai via", "esci", "vai embora", "sair", "ga weg", "verlaat", "odejdź", "wyjdź"),
    )
)
"""Words with which owners and admins of a room can make the bot leave the room."""

ALL_WORDS: Final = frozenset(
    (
        *("all", "everything", "*", "alle", "alles", "tout", "tous", "toutes", "todo", "todos", "todas"),
        *("tutto", "tutti", "tutte", "tudo", "wszystko", "wszystkie"),
    )
)

ERASURE_WORDS: Final = frozenset(
    ("", "me", "mich", "moi", "a mí", "me please", "everything", "di me", "de mim", "mij", "mnie", "o mnie")
)
"""Words after `forget` that request the deletion of the user's data. With any other words, `forget` shows its help
text."""

READ_ONLY: Final = ("list", "find", "discover", "more", "show", "why", "status", "help", "hello")
"""Verbs of commands that change nothing."""

VERBS: Final = (
    *("subscribe", "unsubscribe", "list", "find", "discover", "watch", "unwatch", "show", "why", "status", "quiet"),
    *("digest", "timezone", "language", "pause", "resume", "set", "filter", "announcements", "export", "import"),
    *("atom", "webhook", "forget", "help"),
)
"""Verbs with a help text; they are also the nodes of ad-hoc commands."""

REPLY_SHORTHANDS: Final = {"stop": "unsubscribe #{}", "mute": "set #{} mute on", "unmute": "set #{} mute off"}
"""Words that are commands only in a reply to a message of the bot, and the command that each stands for. ``{}`` is the
number of the subscription."""

SUBSCRIPTION_ONLY: Final = ("unsubscribe", "show", "why", "pause", "resume")
SUBSCRIPTION_FIRST: Final = ("set", "filter")

COMMAND_OF_REACTION: Final = {
    **dict.fromkeys(("❌", "✖", "🗑", "🚫", "⛔", "🛑"), "unsubscribe"),
    **dict.fromkeys(("🔇", "🔕", "🤫"), "mute"),
    **dict.fromkeys(("⏸", "💤"), "pause"),
    **dict.fromkeys(("▶", "⏯"), "resume"),
    **dict.fromkeys(("❓", "❔"), "why"),
}
"""Maps each emoji, without variation selectors, to the command that it stands for in a reaction."""
