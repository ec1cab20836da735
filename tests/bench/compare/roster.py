"""All that take part, this store first."""

from __future__ import annotations

from tests.bench.compare.peers import JsonLines, Ours, Peer, SqliteTable
from tests.bench.compare.peers_git import GitCommits, GitTree, Pygit2, Pygit2Synced
from tests.bench.compare.peers_pypi import LangGraph, Llm, OpenAiAgents

ROSTER: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        Ours,
        Llm,
        LangGraph,
        OpenAiAgents,
        Pygit2,
        Pygit2Synced,
        GitTree,
        GitCommits,
        SqliteTable,
        JsonLines,
    )
}
