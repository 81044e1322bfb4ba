"""The lxml parser for XML documents of publishers."""

from lxml import etree


def new_xml_parser() -> etree.XMLParser:
    """Return a parser for a document encoded as UTF-8, whatever encoding it declares.

    The parser loads nothing and replaces no entities. It drops comments and processing instructions, but keeps CDATA
    sections, so that elements are serialized as in the document.
    """
    return etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        strip_cdata=False,
    )
