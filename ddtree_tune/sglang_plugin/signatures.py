"""Whether the SGLang that is installed is one that DDTREE is built on.

SGLang promises plugins no more than their registration; the drafter's worker, the verify pass and
the caches are its own business and change with every release. So the parameters of every function
and the fields of every class that the plugin uses are compared with those of 0.5.17, by reading the
source: nothing is imported, and a drift is named before anything else happens.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
from pathlib import Path

SUPPORTED = "0.5.17"

_FUNCTIONS: dict[str, dict[str, str]] = {
    "srt/speculative/dflash_worker_v2.py": {
        "DFlashWorkerV2.__init__": "self server_args gpu_id ps nccl_port target_worker",
        "DFlashWorkerV2.init_cuda_graphs": "self",
        "DFlashWorkerV2._maybe_build_draft_sampler": "self",
        "DFlashWorkerV2._ensure_draft_block_buffers": "self bs",
        "DFlashWorkerV2._compute_compact_draft_seq_lens": "self seq_lens",
        "DFlashWorkerV2._fill_compact_seq_lens_cpu_bound": (
            "self batch_seq_lens_cpu reserved_seq_lens_cpu draft_prefix_lens out"
        ),
        "DFlashWorkerV2._rebuild_compact_draft_cache": (
            "self req_pool_indices prefix_lens draft_prefix_lens verify_out_cache_loc_2d bs block_size"
        ),
        "DFlashWorkerV2._append_target_hidden_to_draft_kv_by_loc": (
            "self target_hidden cache_loc positions cache_loc_2d commit_lens"
        ),
        "DFlashWorkerV2._make_next_draft_input_decode": "self bonus_tokens new_seq_lens",
        "DFlashWorkerV2.forward_batch_generation": "self batch on_publish grammar_barrier",
    },
    "srt/speculative/draft_worker_common.py": {
        "build_block_pos_offsets": "length device",
        "make_draft_block_spec_info": "draft_token_num device",
        "make_draft_sampler_capture_hook": "draft_sampler",
    },
    "srt/speculative/dflash_info.py": {
        "DFlashVerifyInput.prepare_for_verify": "self batch target_worker",
    },
    "srt/speculative/dflash_info_v2.py": {"DFlashDraftInputV2.prepare_for_decode": "self batch"},
    "srt/speculative/dflash_utils.py": {
        "resolve_dflash_verify_mask_policy": "attn_backend",
        "is_dflash_sampling_verify_available": "",
        "apply_dflash_verify_logits_adjustments": "next_token_logits sampling_info draft_token_num",
        "build_dflash_verify_target_probs": (
            "next_token_logits sampling_info draft_token_num bs max_top_k uniform_top_k_value use_sparse_topk"
        ),
    },
    "srt/speculative/spec_utils.py": {
        "GrammarTree.from_device": "cls retrieve_next_token retrieve_next_sibling draft_token",
        "build_grammar_vocab_mask": "reqs tree sampling_info device barrier",
    },
    "srt/speculative/spec_registry.py": {
        "CustomSpecAlgo.handle_server_args": "self server_args",
        "CustomSpecAlgo.get_num_tokens_per_req_for_target_verify": "self num_draft_tokens is_draft_worker",
        "register_algorithm": "name supports_overlap validate_server_args spec_class",
    },
    "srt/arg_groups/speculative_hook.py": {"_handle_dflash": "server_args"},
    "srt/arg_groups/overrides.py": {"resolved_view": "server_args"},
    "srt/managers/overlap_utils.py": {
        "FutureMap.__init__": "self device spec_algo req_to_token_pool needs_cpu_seq_lens needs_confidence_relay",
    },
    "srt/managers/scheduler.py": {"Scheduler.process_batch_result": "self batch result"},
    "srt/managers/tp_worker.py": {
        "TpModelWorker.forward_batch_generation": (
            "self batch forward_batch pp_proxy_tensors is_verify skip_attn_backend_init capture_hidden_mode"
        ),
    },
    "srt/layers/attention/verify_mask.py": {"VerifyMask.fits": "self bs"},
    "srt/layers/attention/triton_backend.py": {
        "TritonAttnBackend._update_target_verify_buffers": "self bs seq_lens req_pool_indices spec_info",
        "TritonAttnBackend.init_forward_metadata": "self forward_batch",
    },
    "srt/mem_cache/memory_pool.py": {
        "MHATokenToKVPool.move_kv_cache": "self tgt_loc src_loc",
        "MLATokenToKVPool.move_kv_cache": "self tgt_loc src_loc",
    },
    "kernels/ops/speculative/dflash.py": {
        "_prepare_dflash_draft_block_unchecked": (
            "bonus_tokens prefix_lens req_pool_indices req_to_token block_ids_out positions_out cache_loc_out "
            "mask_token_id"
        ),
    },
}
"""By source file: function, and its parameters in order."""

_FIELDS: dict[str, dict[str, str]] = {
    "srt/speculative/dflash_info.py": {
        "DFlashVerifyInput": "draft_token positions draft_token_num topk custom_mask capture_hidden_mode",
    },
    "srt/speculative/dflash_info_v2.py": {
        "DFlashDraftInputV2": (
            "bonus_tokens new_seq_lens max_top_k uniform_top_k_value reserved_seq_lens_cpu reserved_seq_lens_sum"
        ),
    },
    "srt/layers/attention/verify_mask.py": {"VerifyMask": "buffer mode max_bs is_read"},
    "srt/managers/utils.py": {
        "GenerationBatchResult": (
            "logits_output next_token_ids accept_lens can_run_cuda_graph speculative_num_draft_tokens new_seq_lens "
            "next_draft_input"
        ),
    },
    "srt/model_executor/forward_batch_info.py": {
        "ForwardBatch": (
            "forward_mode batch_size input_ids req_pool_indices seq_lens out_cache_loc seq_lens_sum seq_lens_cpu "
            "positions input_embeds spec_algorithm spec_info capture_hidden_mode"
        ),
    },
}
"""By source file: class, and fields that it must have."""


def require_supported() -> None:
    """Refuse a release that DDTREE is not built on.

    Raises:
        ValueError: the first function or class that has drifted.
    """
    if drift := first_drift(_package()):
        raise ValueError(f"DDTREE must run on SGLang {SUPPORTED}, but got {_version()}, {drift}; {advice()}")


def advice() -> str:
    """What to do about another release."""
    return f"install sglang=={SUPPORTED}"


@functools.cache
def first_drift(package: Path) -> str | None:
    """What differs first from what the plugin is built on.

    Args:
        package: SGLang's folder.

    Returns:
        Half a sentence; None where everything is as it must be.
    """
    for source in sorted({*_FUNCTIONS, *_FIELDS}):
        path = package / source
        if not path.is_file():
            return f"which has no {source}"
        functions, fields = _declared(path.read_text(encoding="utf-8"))
        for name, parameters in _FUNCTIONS.get(source, {}).items():
            if name not in functions:
                return f"whose {source} has no {name}"
            if functions[name] != parameters.split():
                return f"whose {name} takes ({', '.join(functions[name])}) and not ({', '.join(parameters.split())})"
        for name, needed in _FIELDS.get(source, {}).items():
            if missing := [one for one in needed.split() if one not in fields.get(name, ())]:
                return f"whose {name} lacks {', '.join(missing)}"
    return None


def _declared(text: str) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """Parameters of every function and method of a source, and the annotated fields of every class."""
    functions: dict[str, list[str]] = {}
    fields: dict[str, set[str]] = {}
    tree = ast.parse(text)
    scopes = [("", tree.body), *((f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef))]
    for prefix, body in scopes:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(prefix + node.name, [one.arg for one in _parameters(node.args)])
            elif prefix and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                fields.setdefault(prefix[:-1], set()).add(node.target.id)
    return functions, fields


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _package() -> Path:
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"DDTREE must run beside SGLang {SUPPORTED}, but got none; {advice()}")
    return Path(next(iter(spec.submodule_search_locations)))


def _version() -> str:
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "an unknown version"
