"""``--default-max-new-tokens N`` bounds requests that name no limit of their own.

What: a request without ``max_tokens`` may run on to the end of the context. The new server argument
gives such requests a limit; one that a request names always wins, and without the argument (or
with 0) nothing changes. One field, one option of ``ServerArgs``, one default in the scheduler.

Why: one client that never sets ``max_tokens`` decodes without end and grows its KV cache until it
pushes out every other session; MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks pull request 51 tells
of it and carries the like for another server. SGLANG_MAX_NEW_TOKENS_LIMIT is no substitute: it
caps the requests that ask for more as well.

Drop when: sglang has a server argument for the default of ``max_new_tokens``.
"""

from __future__ import annotations

from rewriter.codemod import Codemod, Insert, Replace, Site

_OPTION = """\
parser.add_argument(
    "--default-max-new-tokens",
    type=int,
    default=None,
    help="How many tokens a request may generate that names no limit. Default: no limit.",
)"""


class DefaultMaxNewTokens(Codemod):
    """A server argument for the limit of requests that have none."""

    target = "sglang/srt/managers/scheduler.py"
    supports = ">=0.5.3rc0,<0.6"
    drop_when = "sglang has a server argument for the default of max_new_tokens"
    sites = (
        Site(
            "Scheduler.init_req_max_new_tokens",
            "default",
            "{limit} if {limit} is not None else 1 << 30",
            Replace(
                "{limit} if {limit} is not None "
                "else self.server_args.default_max_new_tokens or 1 << 30"
            ),
        ),
        *(
            Site(
                f"{name}.<fields>",
                "field",
                "max_queued_requests: {kind} = {default}",
                Insert("default_max_new_tokens: Optional[int] = None"),
                file=file,
                one_of="field",
            )
            for name, file in (
                ("ServerArgs", "sglang/srt/server_args.py"),
                ("Schedule", "sglang/srt/arg_groups/fields/schedule.py"),  # 0.5.20
            )
        ),
        Site(
            "ServerArgs.add_cli_args",
            "option",
            (
                'parser.add_argument("--max-queued-requests", {*rest})',
                "add_cli_args_from_dataclass(parser, ServerArgs)",  # 0.5.14
            ),
            Insert(_OPTION),
            file="sglang/srt/server_args.py",
        ),
    )
