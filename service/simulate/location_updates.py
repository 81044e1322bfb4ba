"""Which updates are sent (§II.D): the paper's three algorithms, and those of the product, which lose nothing."""

from enum import StrEnum

from service.location.bloom import Shape
from service.location.protocol import Filtering, Node
from service.model import NodeId


class Updates(StrEnum):
    """The algorithms of Figure 8 as published, and the product's. Without filtering, both are the same."""

    NONE = "none"
    DESTINATION = "destination"
    SOURCE = "source"
    PRODUCT_DESTINATION = "our destination"
    PRODUCT_SOURCE = "our source"

    def node(self, me: NodeId, shape: Shape) -> Node:
        """Return a node that sends such updates."""
        product = {
            Updates.PRODUCT_DESTINATION: Filtering.DESTINATION,
            Updates.PRODUCT_SOURCE: Filtering.SOURCE,
        }
        return Node(me, shape, product[self]) if self in product else Published(me, shape, Filtering(self))


class Published(Node):
    """A node that tells a neighbour only what it has not told it yet (the paper's Figure 16, line 18).

    It believes that a neighbour still has what that one has dropped, and then documents that share these bits are lost.
    """

    def __init__(self, me: NodeId, shape: Shape, filtering: Filtering) -> None:
        """Begin without documents and neighbours."""
        super().__init__(me, shape, filtering)
        self._changes_only = True
