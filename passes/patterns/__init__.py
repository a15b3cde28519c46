"""The patterns that ship with Passwright, one family per file."""

from passwright.passes.patterns.associate import EinsumInPairs, MergeLinears, ReassociateMatmuls
from passwright.passes.patterns.attention import FuseAttention
from passwright.passes.patterns.bags import BagAsSum, BatchBags, SumAsBag
from passwright.passes.patterns.batch_norms import BatchNormsByChannel
from passwright.passes.patterns.big_cats import CatInGroups
from passwright.passes.patterns.branches import BatchBranches, WidenBranches
from passwright.passes.patterns.cats import FlattenNestedCats, SplitCatIntoCats, SplitOfCat
from passwright.passes.patterns.columns import ConvertBelowJoin
from passwright.passes.patterns.convolutions import PointwiseConvolutionAsMatmul, WidenConvolutions
from passwright.passes.patterns.counters import BatchCounters
from passwright.passes.patterns.dense_fields import LinearOfOne, LinearsOfOne, LinearToOne
from passwright.passes.patterns.dropouts import BatchDropouts
from passwright.passes.patterns.duplicates import MergeDuplicates
from passwright.passes.patterns.einsums import EinsumAsMatmul, EinsumAsPointwise
from passwright.passes.patterns.embeddings import EmbeddingsOfOneTable, GatherEmbeddings
from passwright.passes.patterns.experts import (
    BatchWeightedSums,
    MatmulAsWeightedSum,
    WeightedSumAsMatmul,
)
from passwright.passes.patterns.fold_batch_norms import FoldBatchNorm
from passwright.passes.patterns.functionalize import OutOfPlace
from passwright.passes.patterns.grouped_gather import GatherIntoCat
from passwright.passes.patterns.grouped_layer_norm import GroupLayerNorms
from passwright.passes.patterns.grouped_linear import GroupLinears
from passwright.passes.patterns.heads import BatchAttentions
from passwright.passes.patterns.hoist import UnaryAboveSplit, UnaryBelowCat
from passwright.passes.patterns.identities import RemoveIdentity
from passwright.passes.patterns.interleave import InterleavePieces
from passwright.passes.patterns.joins import PermuteBelowJoin, ReshapeBelowStack
from passwright.passes.patterns.linear_cat import LinearOfCat, LinearsAdded
from passwright.passes.patterns.linears import BatchLinears, TallLinears, WidenLinears
from passwright.passes.patterns.lookups import (
    EmbeddingsOfManyTables,
    UnequalEmbeddingsOfOneTable,
    WidenEmbeddings,
)
from passwright.passes.patterns.matmuls import (
    BatchMatmuls,
    MatmulAsLinear,
    TallMatmuls,
    WidenMatmuls,
)
from passwright.passes.patterns.multi_head import DropAttentionWeights
from passwright.passes.patterns.norms import BatchLayerNorms
from passwright.passes.patterns.padding import PadLinearOfCat, PadLinearOutputs
from passwright.passes.patterns.pairs import PairProducts, ProductsOfRuns
from passwright.passes.patterns.pointwise import BatchBinaries, BatchUnaries, JoinUnaries
from passwright.passes.patterns.reductions import BatchReductions
from passwright.passes.patterns.repeats import CatOfRepeats, InnerProductsAsMatmul
from passwright.passes.patterns.reshapes import (
    MergePermutes,
    MergeReshapes,
    RemoveIdentityPermute,
    RemoveIdentityReshape,
    ReshapeOfPermute,
)
from passwright.passes.patterns.saved_activations import QuantizeSavedActivations
from passwright.passes.patterns.scatter import ScatterAsMaskedSum, ScatterAsProduct
from passwright.passes.patterns.slices import (
    CatOfColumns,
    MergeSlices,
    SelectOfCat,
    SliceOfCat,
    SliceOfPiece,
    StackOfSelects,
)
from passwright.passes.patterns.small_matmuls import SmallMatmulAsPointwise
from passwright.passes.patterns.softmaxes import BatchSoftmaxes
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
from passwright.passes.patterns.sums import SumOfMany, WeightedAddsAsMatmul

__all__ = [
    "BagAsSum",
    "BatchAttentions",
    "BatchBags",
    "BatchBinaries",
    "BatchBranches",
    "BatchCounters",
    "BatchDropouts",
    "BatchLayerNorms",
    "BatchLinears",
    "BatchMatmuls",
    "BatchNormsByChannel",
    "BatchReductions",
    "BatchSoftmaxes",
    "BatchUnaries",
    "BatchWeightedSums",
    "CatInGroups",
    "CatOfColumns",
    "CatOfPieces",
    "CatOfRepeats",
    "CatOfUnbind",
    "ConvertBelowJoin",
    "DropAttentionWeights",
    "EinsumAsMatmul",
    "EinsumAsPointwise",
    "EinsumInPairs",
    "EmbeddingsOfManyTables",
    "EmbeddingsOfOneTable",
    "FlattenNestedCats",
    "FoldBatchNorm",
    "FuseAttention",
    "GatherEmbeddings",
    "GatherIntoCat",
    "GroupLayerNorms",
    "GroupLinears",
    "InnerProductsAsMatmul",
    "InterleavePieces",
    "JoinUnaries",
    "LinearOfCat",
    "LinearOfOne",
    "LinearToOne",
    "LinearsAdded",
    "LinearsOfOne",
    "LonePieceToSlice",
    "MatmulAsLinear",
    "MatmulAsWeightedSum",
    "MergeConsecutivePieces",
    "MergeDuplicates",
    "MergeLinears",
    "MergeNestedSplits",
    "MergePermutes",
    "MergeReshapes",
    "MergeSharedPieces",
    "MergeSlices",
    "OutOfPlace",
    "PadLinearOfCat",
    "PadLinearOutputs",
    "PairProducts",
    "PermuteBelowJoin",
    "PiecesToSlices",
    "PointwiseConvolutionAsMatmul",
    "ProductsOfRuns",
    "QuantizeSavedActivations",
    "ReassociateMatmuls",
    "RemoveIdentity",
    "RemoveIdentityPermute",
    "RemoveIdentityReshape",
    "RemoveSinglePieceSplit",
    "ReshapeBelowStack",
    "ReshapeOfPermute",
    "ScatterAsMaskedSum",
    "ScatterAsProduct",
    "SelectOfCat",
    "SliceOfCat",
    "SliceOfPiece",
    "SmallMatmulAsPointwise",
    "SplitCatIntoCats",
    "SplitOfCat",
    "StackOfPieces",
    "StackOfSelects",
    "StackOfUnbind",
    "SumAsBag",
    "SumOfMany",
    "TallLinears",
    "TallMatmuls",
    "UnaryAboveSplit",
    "UnaryBelowCat",
    "UnbindOfStack",
    "UnequalEmbeddingsOfOneTable",
    "WeightedAddsAsMatmul",
    "WeightedSumAsMatmul",
    "WidenBranches",
    "WidenConvolutions",
    "WidenEmbeddings",
    "WidenLinears",
    "WidenMatmuls",
]
