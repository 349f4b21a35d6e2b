"""The baseline of whole jobs: Bespoke Curator over the same server. Runs in an environment of its own.

`python curator_client.py BASE_URL MODEL PROMPTS IN_FLIGHT MAX_TOKENS` prints `{"cpu_s", "samples", "wall_s"}` last.
Curator needs the tokenizer table that litellm carries, because the network has none to offer here.
"""

import json
import os
import sys
import time
from pathlib import Path

import litellm  # type: ignore[import-not-found]

os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(litellm.__file__).parent / "litellm_core_utils" / "tokenizers")
os.environ["CURATOR_DISABLE_RICH_DISPLAY"] = "1"
os.environ["TELEMETRY_ENABLED"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

from bespokelabs import curator  # type: ignore[import-not-found]


def main() -> None:
    """Ask for every prompt once."""
    base_url, model, prompts, in_flight, max_tokens = sys.argv[1:6]
    texts = json.loads(Path(prompts).read_text())
    model_of_job = curator.LLM(
        model_name=model,
        backend="openai",
        backend_params={
            "base_url": base_url,
            "api_key": "bench",
            "max_concurrent_requests": int(in_flight),
            "max_requests_per_minute": 10**9,
            "max_tokens_per_minute": 10**12,
            "invalid_finish_reasons": [],
            "require_all_responses": False,
        },
        generation_params={"max_tokens": int(max_tokens)},
    )
    wall, cpu = time.monotonic(), time.process_time()
    answers = model_of_job(texts)
    figures = {"cpu_s": time.process_time() - cpu, "wall_s": time.monotonic() - wall}
    rows = answers.dataset if hasattr(answers, "dataset") else answers
    print(json.dumps({**figures, "samples": len(rows)}))


if __name__ == "__main__":
    main()
