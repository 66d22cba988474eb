#!/usr/bin/env python3
"""GGUF files of SmolLM3 and Qwen3 MoE for the tests, and what transformers computes of their numbers.

make_gguf.py CHECKPOINTS TOKENIZER_GGUF OUT

CHECKPOINTS holds smollm3-nope and qwen3_moe-split; the vocabulary is TOKENIZER_GGUF's (llama-small.Q8_0.gguf). Weights are quantized to
Q8_0 by the gguf library (norms and routers F32); names, keys, the order of rows of q and k, and experts along one axis as llama.cpp's
converter has them. Logits: transformers in float32 on the dequantized blocks. Needs gguf 0.19, torch, transformers 5, safetensors.
"""
import hashlib, json, os, shutil, sys, tempfile
import gguf, numpy as np, torch
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

checkpoints, tokenizer, out = sys.argv[1:4]
IDS = [0, 147, 248, 151, 299]
NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}


def permute(w, n_heads):
    """Rows of a head from halves to neighbours."""
    return w.reshape(n_heads, 2, w.shape[0] // n_heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def make(checkpoint, arch, pre, permutes):
    source = os.path.join(checkpoints, checkpoint)
    c = json.load(open(os.path.join(source, "config.json")))
    tensors = {}
    for f in sorted(os.listdir(source)):
        if f.startswith("model") and f.endswith(".safetensors"):
            tensors |= {k: v.float() for k, v in load_file(os.path.join(source, f)).items()}
    name = f"{checkpoint}.Q8_0.gguf"
    w = gguf.GGUFWriter(os.path.join(out, name), arch)
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    w.add_name(name[:-5])
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(head_dim)
    w.add_vocab_size(c["vocab_size"])
    if "num_experts" in c:
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    r = gguf.GGUFReader(tokenizer)
    text = lambda f: [bytes(f.parts[i]).decode() for i in f.data]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(text(r.fields["tokenizer.ggml.tokens"]))
    w.add_token_types([int(r.fields["tokenizer.ggml.token_type"].parts[i][0]) for i in r.fields["tokenizer.ggml.token_type"].data])
    w.add_token_merges(text(r.fields["tokenizer.ggml.merges"]))
    w.add_bos_token_id(0)
    w.add_eos_token_id(1)
    used = {}

    def add(name, data):
        """The numbers that the file then holds."""
        data = np.ascontiguousarray(data, dtype=np.float32)
        if data.ndim == 1 or "ffn_gate_inp" in name:
            w.add_tensor(name, data)
            return data
        q = quantize(data, gguf.GGMLQuantizationType.Q8_0)
        w.add_tensor(name, q, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        return dequantize(q, gguf.GGMLQuantizationType.Q8_0)

    for key, plain in (("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")):
        if f"{plain}.weight" in tensors and not (plain == "lm_head" and c["tie_word_embeddings"]):
            used[f"{plain}.weight"] = add(f"{key}.weight", tensors[f"{plain}.weight"].numpy())
    for i in range(c["num_hidden_layers"]):
        for plain, key in NAMES.items():
            full = f"model.layers.{i}.{plain}.weight"
            if full not in tensors:
                continue
            data = tensors[full].numpy()
            heads = {"attn_q": c["num_attention_heads"], "attn_k": c["num_key_value_heads"]}.get(key) if permutes else None
            data = add(f"blk.{i}.{key}.weight", permute(data, heads) if heads else data)
            if heads:  # back again
                data = data.reshape(heads, head_dim // 2, 2, -1).swapaxes(1, 2).reshape(data.shape)
            used[full] = data
        for part in ("gate", "up", "down") if "num_experts" in c else ():
            each = [f"model.layers.{i}.mlp.experts.{e}.{part}_proj.weight" for e in range(c["num_experts"])]
            stacked = add(f"blk.{i}.ffn_{part}_exps.weight", np.stack([tensors[k].numpy() for k in each]))
            used |= dict(zip(each, stacked))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    with tempfile.TemporaryDirectory() as folder:
        json.dump(c | {"torch_dtype": "float32"}, open(os.path.join(folder, "config.json"), "w"))
        save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in used.items()}, os.path.join(folder, "model.safetensors"))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            last = model(torch.tensor([IDS])).logits[0, -1]
    data = open(os.path.join(out, name), "rb").read()
    json.dump({"file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "checkpoint": checkpoint,
               "logits": {"note": "float32 transformers on the dequantized tensors", "ids": IDS,
                          "last_position": [round(float(v), 6) for v in last], "argmax": int(last.argmax())}},
              open(os.path.join(out, name + ".json"), "w"), indent=1)
    print(name, len(data), int(last.argmax()))


make("smollm3-nope", "smollm3", "smaug-bpe", True)
make("qwen3_moe-split", "qwen3moe", "qwen2", False)
