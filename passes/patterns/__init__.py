"""The patterns that ship with Passwright, one family per file."""

from passwright.passes.patterns.cats import FlattenNestedCats, SplitCatIntoCats, SplitOfCat
from passwright.passes.patterns.embeddings import EmbeddingsOfOneTable, GatherEmbeddings
from passwright.passes.patterns.functionalize import OutOfPlace
from passwright.passes.patterns.hoist import UnaryAboveSplit, UnaryBelowCat
from passwright.passes.patterns.identities import RemoveIdentity
from passwright.passes.patterns.interleave import InterleavePieces
from passwright.passes.patterns.linears import BatchLinears, TallLinears, WidenLinears
from passwright.passes.patterns.norms import BatchLayerNorms
from passwright.passes.patterns.pointwise import BatchBinaries, BatchUnaries
from passwright.passes.patterns.reshapes import (
    MergePermutes,
    MergeReshapes,
    RemoveIdentityPermute,
    RemoveIdentityReshape,
    ReshapeOfPermute,
)
from passwright.passes.patterns.slices import (
    CatOfColumns,
    MergeSlices,
    SelectOfCat,
    SliceOfCat,
    SliceOfPiece,
    StackOfSelects,
)
from passwright.passes.patterns.split_cat import (
    CatOfPieces,
    MergeConsecutivePieces,
    MergeSharedPieces,
)
from passwright.passes.patterns.splits import (
    LonePieceToSlice,
    MergeNestedSplits,
    PiecesToSlices,
    RemoveSinglePieceSplit,
)
from passwright.passes.patterns.stack_unbind import (
    CatOfUnbind,
    StackOfPieces,
    StackOfUnbind,
    UnbindOfStack,
)

__all__ = [
    "BatchBinaries",
    "BatchLayerNorms",
    "BatchLinears",
    "BatchUnaries",
    "CatOfColumns",
    "CatOfPieces",
    "CatOfUnbind",
    "EmbeddingsOfOneTable",
    "FlattenNestedCats",
    "GatherEmbeddings",
    "InterleavePieces",
    "LonePieceToSlice",
    "MergeConsecutivePieces",
    "MergeNestedSplits",
    "MergePermutes",
    "MergeReshapes",
    "MergeSharedPieces",
    "MergeSlices",
    "OutOfPlace",
    "PiecesToSlices",
    "RemoveIdentity",
    "RemoveIdentityPermute",
    "RemoveIdentityReshape",
    "RemoveSinglePieceSplit",
    "ReshapeOfPermute",
    "SelectOfCat",
    "SliceOfCat",
    "SliceOfPiece",
    "SplitCatIntoCats",
    "SplitOfCat",
    "StackOfPieces",
    "StackOfSelects",
    "StackOfUnbind",
    "TallLinears",
    "UnaryAboveSplit",
    "UnaryBelowCat",
    "UnbindOfStack",
    "WidenLinears",
]
