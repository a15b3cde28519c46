"""Reader of multi-head attention."""

from __future__ import annotations

import torch.nn.functional as F

from passwright.passes.binding import Bound, spelled
from passwright.passes.ops import MultiHeadAttention, Op


@spelled(
    "query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,"
    " add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True,"
    " key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False,"
    " q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,"
    " average_attn_weights=True, is_causal=False",
    F.multi_head_attention_forward,
)
def read_multi_head_attention(call: Bound) -> Op | None:
    """Not read: a causal hint, for which torch leaves out the mask it is given."""
    source, p, training = call.tensor("query"), call["dropout_p"], call["training"]
    flags = (training, call["need_weights"])
    if source is None or type(p) not in (int, float) or any(type(f) is not bool for f in flags):
        return None
    if call["is_causal"] is not False:
        return None
    masked = call["key_padding_mask"] is not None or call["attn_mask"] is not None
    dropout = float(p) if training else 0.0
    return MultiHeadAttention(call.node, source[0], masked, dropout, call["need_weights"])
