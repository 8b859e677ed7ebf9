"""Tiny random models of each family, and what they compute.

For each family: a GGUF file with the metadata and tensors that llama.cpp's
converter writes, and the logits that Hugging Face transformers computes with the
same weights. `families.json` holds the logits; `sentence_piece.json` token ids of
the tiny gemma3 file's vocabulary, by the sentencepiece library, and
`sentence_piece_spaced.json` those with a space before every text.

Made with torch 2.15.0, transformers 5.24.0, gguf 0.19.0, sentencepiece 0.2.3 and
numpy 2.4.6; the versions used last are in `families.json`. Run in this folder:

    python -m venv venv && venv/bin/pip install torch transformers accelerate gguf sentencepiece
    venv/bin/python make_families.py

With the path of a real GGUF file as its argument it writes token ids of that
file's whole vocabulary instead: of a Gemma 3, by the sentencepiece library,
`gemma3_270m_ids.json`; of a Qwen2, by transformers, `qwen2_ids.json`. And what
transformers computes with the file's weights, unpacked to f32:
`gemma3_270m_logits.json` and `qwen2_logits.json`.
"""

import importlib.metadata
import io
import json
import math
import sys
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2

SEED = 20261201
HERE = Path(__file__).parent
CONTROL, USER_DEFINED = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED
TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    " two  spaces,   three,    four and a tab\there",
    "lines\n\nand\n\n\nmore lines\n",
    "na\u00efve caf\u00e9 \U0001f980 \u4f60\u597d",
    "def f(x):\n    return x == 3 and x != 44444\n",
    "<bos> is text here, and so is <eos>",
    "====== ------ aaaaaaa hahahaha 1234567890",
    "",
    " ",
    "The models are trained.",
]

CORPUS = """
A tokenizer is trained on text, and the text is what decides how words are cut.
The weights of a model are read from a file; the file says how they are written.
def forward(self, tokens): return self.norm(self.layers(self.embed(tokens)))
for (row, column) in enumerate(rows): print(row, column, rows[row][column])
When the service does not answer, look at the log of the last hour and restart it.
Numbers such as 1024, 2048, 4096 and 65536 are powers of two; 1000 and 12345 are not.
Every block keeps its keys and values, and a block that moved is read through another angle.
He said that she had said that they were there, and that this was all there was to it.
if x == y and z != w: raise ValueError("x and y are the same, z and w are not")
Bread, butter, cheese, apples, oranges, bananas, potatoes, carrots, onions and garlic.
The river runs through the valley, under the old bridge, past the mill and into the sea.
Questions are answered from what was read before; what was not read cannot be answered.
""".strip()


def filled(model):
    """Weights large enough that every part of the model matters."""
    generator = torch.Generator().manual_seed(SEED)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if name.endswith("bias"):
            weight.data = noise * 0.5
        elif weight.dim() == 1:
            # Gemma's norms multiply by 1 + weight.
            is_gemma = "gemma" in type(model).__name__.lower()
            weight.data = noise * 0.2 + (0.0 if is_gemma else 1.0)
        elif "embed_tokens" in name:
            weight.data = noise
        else:
            weight.data = noise * (1.3 / math.sqrt(weight.shape[1]))
    model.tie_weights()
    return model.eval()


def permuted(weight, n_heads):
    """Rows of Q and K as llama files have them: pairs side by side."""
    rows = weight.reshape(n_heads, 2, weight.shape[0] // n_heads // 2, -1)
    return rows.transpose(0, 2, 1, 3).reshape(weight.shape)


def byte_vocabulary(writer, pre, vocab_size):
    """Single characters: these models are asked for ids, not for text."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [chr(33 + i) for i in range(vocab_size - 4)] + ['!"']
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL] * 3 + [gguf.TokenType.NORMAL] * (vocab_size - 3))
    writer.add_token_merges(['! "'])
    writer.add_eos_token_id(2)


def sentence_piece_model(vocab_size):
    """A BPE vocabulary with bytes."""
    lines = CORPUS.splitlines() + TEXTS * 3
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=trained, model_type="bpe",
        vocab_size=vocab_size, byte_fallback=True, add_dummy_prefix=False,
        remove_extra_whitespaces=False, normalization_rule_name="identity",
        user_defined_symbols=["\n", "\n\n", "\u2581\u2581", "\u2581\u2581\u2581"],
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", bos_piece="<bos>",
        eos_piece="<eos>", minloglevel=2,
    )
    return trained.getvalue()


def sentence_piece_vocabulary(writer, vocab_size):
    proto = sentencepiece_model_pb2.ModelProto.FromString(sentence_piece_model(vocab_size))
    pieces = proto.pieces
    is_user = [piece.type == 4 for piece in pieces]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    # The converter writes spaces of user-defined tokens as spaces.
    writer.add_token_list(
        [p.piece.replace("\u2581", " ") if u else p.piece for p, u in zip(pieces, is_user)]
    )
    writer.add_token_scores([-1000.0 if u else p.score for p, u in zip(pieces, is_user)])
    # Unknown is written as a control token, as for Gemma.
    writer.add_token_types([CONTROL if p.type == 2 else p.type for p in pieces])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    return proto


def ids_by_sentencepiece(proto):
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return [{"text": text, "ids": tokenizer.encode(text)} for text in TEXTS]


def write(name, arch, model, vocabulary, extra, tensors_extra=(), permute=False):
    config = model.config
    writer = gguf.GGUFWriter(HERE / f"{name}.gguf", arch)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    extra(writer)
    vocabulary(writer, config.vocab_size)
    names = gguf.get_tensor_name_map(
        next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == arch),
        config.num_hidden_layers,
    )
    tied = config.tie_word_embeddings
    for hf_name, weight in model.state_dict().items():
        if hf_name.endswith("rotary_emb.inv_freq") or (tied and hf_name == "lm_head.weight"):
            continue
        values = weight.detach().numpy().astype(np.float32)
        if permute and hf_name.endswith("q_proj.weight"):
            values = permuted(values, heads)
        elif permute and hf_name.endswith("k_proj.weight"):
            values = permuted(values, kv_heads)
        if arch == "gemma3" and hf_name.endswith("norm.weight"):
            values = values + 1
        writer.add_tensor(
            names.get_name(hf_name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(values)
        )
    for tensor_name, values in tensors_extra:
        writer.add_tensor(tensor_name, np.asarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def case(model, n_tokens, context_limit=None):
    """Logits of some rows of one sequence."""
    generator = np.random.default_rng(SEED + n_tokens)
    tokens = generator.integers(4, model.config.vocab_size, n_tokens).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0].double().numpy()
    rows = sorted({0, 1, 18, 19, 20, n_tokens // 2, n_tokens - 1} & set(range(n_tokens)))
    return {
        "tokens": tokens,
        "context_limit": context_limit,
        "rows": rows,
        "logits": [[round(float(x), 5) for x in logits[row]] for row in rows],
    }


def common(**sizes):
    return dict(dtype="float32", attn_implementation="eager", **sizes)


def llama():
    rope = {
        "rope_type": "llama3", "rope_theta": 20000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 96,
    }
    model = filled(transformers.LlamaForCausalLM(transformers.LlamaConfig(**common(
        vocab_size=61, hidden_size=32, intermediate_size=35, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=400,
        rms_norm_eps=1e-5, rope_parameters=rope, tie_word_embeddings=True,
    ))))

    def extra(writer):
        writer.add_rope_dimension_count(8)
        writer.add_rope_freq_base(20000.0)

    # As the converter computes `rope_freqs.weight`.
    factors = []
    for i in range(0, 8, 2):
        wave = 2 * math.pi * 20000.0 ** (i / 8)
        if wave < 96 / 4.0:
            factors.append(1.0)
        elif wave > 96 / 1.0:
            factors.append(8.0)
        else:
            smooth = (96 / wave - 1.0) / (4.0 - 1.0)
            factors.append(1 / ((1 - smooth) / 8.0 + smooth))
    write("llama", "llama", model, lambda w, n: byte_vocabulary(w, "llama-bpe", n), extra,
          [("rope_freqs.weight", factors)], permute=True)
    return [case(model, 300)]


def mistral():
    model = filled(transformers.MistralForCausalLM(transformers.MistralConfig(**common(
        vocab_size=59, hidden_size=24, intermediate_size=37, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=1, head_dim=8, max_position_embeddings=400,
        rms_norm_eps=1e-5, sliding_window=19, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ))))

    def extra(writer):
        writer.add_rope_dimension_count(8)
        writer.add_rope_freq_base(10000.0)
        writer.add_sliding_window(19)

    write("mistral", "llama", model, lambda w, n: byte_vocabulary(w, "gpt-2", n), extra,
          permute=True)
    return [case(model, 290)]


def qwen2():
    model = filled(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**common(
        vocab_size=53, hidden_size=30, intermediate_size=31, num_hidden_layers=2,
        num_attention_heads=5, num_key_value_heads=1, max_position_embeddings=400,
        rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ))))
    write("qwen2", "qwen2", model, lambda w, n: byte_vocabulary(w, "qwen2", n),
          lambda w: w.add_rope_freq_base(1000000.0))
    return [case(model, 280)]


def qwen3():
    model = filled(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**common(
        vocab_size=67, hidden_size=28, intermediate_size=33, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, max_position_embeddings=400,
        rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ))))

    def extra(writer):
        writer.add_key_length(14)
        writer.add_value_length(14)
        writer.add_rope_freq_base(1000000.0)

    write("qwen3", "qwen3", model, lambda w, n: byte_vocabulary(w, "qwen2", n), extra)
    return [case(model, 270)]


def gemma3():
    layers = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(7)]
    config = transformers.Gemma3TextConfig(**common(
        vocab_size=416, hidden_size=24, intermediate_size=21, num_hidden_layers=7,
        num_attention_heads=3, num_key_value_heads=1, head_dim=10, max_position_embeddings=400,
        rms_norm_eps=1e-6, sliding_window=20, layer_types=layers, query_pre_attn_scalar=10,
        tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh",
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ))
    model = filled(transformers.Gemma3ForCausalLM(config))

    def extra(writer):
        writer.add_key_length(10)
        writer.add_value_length(10)
        writer.add_rope_freq_base(1000000.0)
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)
        writer.add_sliding_window(20)

    protos = []
    write("gemma3", "gemma3", model,
          lambda w, n: protos.append(sentence_piece_vocabulary(w, n)), extra)
    save("sentence_piece.json", ids_by_sentencepiece(protos[0]))
    protos[0].normalizer_spec.add_dummy_prefix = True
    save("sentence_piece_spaced.json", ids_by_sentencepiece(protos[0]))
    return [case(model, 310)]


def phi3():
    short, long = [1.0, 1.1, 1.3], [1.5, 3.0, 7.0]
    model = filled(transformers.Phi3ForCausalLM(transformers.Phi3Config(**common(
        vocab_size=71, hidden_size=32, intermediate_size=29, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=1, max_position_embeddings=400,
        original_max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
        sliding_window=None, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "short_factor": short, "long_factor": long,
            "original_max_position_embeddings": 64,
        },
    ))))

    def extra(writer):
        writer.add_rope_dimension_count(6)
        writer.add_rope_freq_base(10000.0)
        writer.add_rope_scaling_orig_ctx_len(64)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(400 / 64) / math.log(64)))
        writer.add_sliding_window(0)

    write("phi3", "phi3", model, lambda w, n: byte_vocabulary(w, "gpt-2", n), extra,
          [("rope_factors_long.weight", long), ("rope_factors_short.weight", short)])
    return [case(model, 60), case(model, 275, context_limit=400)]


def ids_of_file(path):
    """Token ids of a whole vocabulary, through a sentencepiece model made of it."""
    fields = gguf.GGUFReader(path).fields
    values = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.trainer_spec.model_type = 2
    proto.trainer_spec.byte_fallback = True
    proto.trainer_spec.unk_id, proto.trainer_spec.bos_id, proto.trainer_spec.eos_id = 3, 2, 1
    proto.trainer_spec.pad_id = 0
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    for idx, (piece, score, kind) in enumerate(
        zip(values("tokens"), values("scores"), values("token_type"))
    ):
        kind = 2 if idx == 3 else kind
        piece = piece.replace(" ", "\u2581") if kind == 4 else piece
        proto.pieces.add(piece=piece, score=score, type=kind)
    return ids_by_sentencepiece(proto)


def ids_by_transformers(path):
    folder, name = Path(path).parent, Path(path).name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    return [{"text": text, "ids": encode(text)} for text in TEXTS]


def logits_by_transformers(path, ids):
    """The largest logits of some rows of the texts' ids, one after another."""
    folder, name = Path(path).parent, Path(path).name
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager"
    )
    tokens = [id for _ in range(6) for case in ids for id in case["ids"]]
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
    rows = [0, 1, 40, len(tokens) - 1]
    best = [torch.topk(logits[row], 40) for row in rows]
    return {
        "tokens": tokens,
        "rows": rows,
        "ids": [top.indices.tolist() for top in best],
        "logits": [[round(float(x), 4) for x in top.values] for top in best],
    }


def save(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (HERE / name).write_text(text.replace('{"t', '\n{"t') + "\n")


def main():
    if len(sys.argv) > 1:
        path = sys.argv[1]
        is_qwen = gguf.GGUFReader(path).fields["general.architecture"].contents() == "qwen2"
        name = "qwen2" if is_qwen else "gemma3_270m"
        ids = ids_by_transformers(path) if is_qwen else ids_of_file(path)
        save(f"{name}_ids.json", ids)
        return save(f"{name}_logits.json", logits_by_transformers(path, ids))
    makers = [llama, mistral, qwen2, qwen3, gemma3, phi3]
    packages = ["torch", "transformers", "gguf", "sentencepiece", "numpy"]
    save("families.json", {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "seed": SEED,
        "models": {make.__name__: make() for make in makers},
    })


main()
