"""Find text: a full-text search on one node.

Payload / message: {"query": "text", "path": ".", "limit": 100}; only the query is needed.
Returns: {"node", "query", "hits": [{"path", "preview", "line", "count"}],
          "files": how many were searched, "skipped", "binary", "truncated"}.
Try it:
    agentcontainer run agents/search/find_text.py --data-root fixtures/department-a --activate '{"query": "chess"}'
"""

AGENT_ID = "find-text"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "9d0c97604a258d17ee5faf5ddd8048f381a5c95109ec3750"
AGENT_NAME = "Find text"
AGENT_CAPABILITIES = ["search_files"]


class Agent:
    def on_activate(self, ctx, payload):
        return self.find(ctx, payload or {})

    def on_message(self, ctx, message):
        return self.find(ctx, message or {})

    def find(self, ctx, request):
        if not request.get("query"):
            raise ValueError('a "query" is needed')
        # With details the node also says what it could not search, so that an empty list of hits
        # is not mistaken for "it is nowhere".
        found = ctx.search_files(
            request["query"],
            path=request.get("path", "."),
            limit=int(request.get("limit", 100)),
            details=True,
        )
        return dict(found, node=ctx.container_name, query=request["query"])
