"""The words that commands begin with, and what people write instead, in each of the languages we speak. Pure.

Whatever language we speak with a person, they may write any of these: no word stands for two commands.
"""

from typing import Final

_BY_VERB: Final[dict[str, tuple[str, ...]]] = {
    "subscribe": (
        *("sub", "add", "follow", "abonnieren", "abonniere", "abo", "folgen", "hinzufügen", "abonner", "suivre"),
        *("ajouter", "suscribir", "suscribirse", "suscríbeme", "seguir", "añadir"),
    ),
    "unsubscribe": (
        *("unsub", "remove", "rm", "delete", "unfollow", "abbestellen", "kündigen", "entfernen", "löschen"),
        *("désabonner", "desabonner", "supprimer", "retirer", "desuscribir", "eliminar", "quitar", "borrar"),
    ),
    "list": ("ls", "subscriptions", "feeds", "liste", "abos", "abonnements", "lista", "suscripciones"),
    "find": (
        *("search", "discover", "suche", "suchen", "finde", "finden", "chercher", "cherche", "trouver", "recherche"),
        *("buscar", "busca", "encontrar"),
    ),
    "more": ("next", "mehr", "weiter", "plus", "suite", "más", "mas", "siguiente"),
    "watch": ("watches", "beobachten", "beobachte", "surveiller", "surveille", "vigilar", "vigila"),
    "unwatch": (),
    "show": (*("latest", "zeige", "zeig", "zeigen", "montrer", "montre", "afficher", "affiche", "mostrar", "muestra"),),
    "why": ("explain", "warum", "wieso", "pourquoi", "porqué", "porque"),
    "status": ("stats", "zustand", "état", "etat", "estado"),
    "mute": ("stumm", "muet", "silenciar"),
    "unmute": (),
    "quiet": ("silence", "dnd", "ruhe", "ruhezeit", "silencio"),
    "digest": ("summary", "zusammenfassung", "résumé", "resumen"),
    "timezone": ("tz", "zone", "zeitzone", "fuseau", "zona"),
    "language": ("lang", "sprache", "langue", "idioma", "lengua"),
    "invite": ("invitation", "code", "einladung", "invitación", "código"),
    "export": ("opml", "exportieren", "exporter", "exportar"),
    "import": ("importieren", "importiere", "importer", "importe", "importar", "importa"),
    "forget": ("forgetme", "vergiss", "vergessen", "oublier", "oublie", "oublie-moi", "olvidar", "olvida", "olvídame"),
    "pause": ("hold", "pausieren", "pausiere", "suspendre", "pausar", "pausa"),
    "resume": ("unpause", "continue", "fortsetzen", "fortfahren", "reprendre", "reprends", "reanudar", "continuar"),
    "set": ("settings", "setting", "einstellen", "einstellungen", "régler", "réglages", "ajustar", "ajustes"),
    "filter": ("filters", "filtern", "filtre", "filtrer", "filtres", "filtrar", "filtro", "filtros"),
    "help": ("?", "h", "commands", "hilfe", "befehle", "aide", "commandes", "ayuda", "comandos"),
    "hello": ("hi", "start", "hallo", "bonjour", "salut", "hola"),
    "yes": ("y", "yep", "ok", "ja", "j", "oui", "sí", "si", "vale"),
    "no": ("n", "nope", "nein", "non"),
    "cancel": ("stop", "nevermind", "abbrechen", "stopp", "annuler", "cancelar"),
}

VERB_OF: Final = {word: verb for verb, others in _BY_VERB.items() for word in (verb, *others)}
"""Each word, and the verb it stands for."""

_TOO_SHORT_TO_GUESS: Final = 4
GUESSABLE: Final = sorted(word for word in VERB_OF if len(word) >= _TOO_SHORT_TO_GUESS or word in ("sub", "add", "ls"))
"""What a word nearly like it may have been meant for."""

LEAVE: Final = frozenset(
    ("leave", "go away", "part", "geh", "geh weg", "verlassen", "pars", "va-t'en", "quitter", "vete", "salir")
)
"""How a room's owners and admins send us away."""

ALL: Final = frozenset(("all", "everything", "*", "alle", "alles", "tout", "tous", "toutes", "todo", "todos", "todas"))

ME: Final = frozenset(("", "me", "mich", "moi", "a mí", "me please", "everything"))
"""Who is to be forgotten."""
