"""The places where stores meet."""

from __future__ import annotations

import pytest

from tests.transfer.parties import folder_place, object_place


@pytest.fixture(params=["folder", "objects"])
def place(request, tmp_path):
    """One remote, as each kind of remote."""
    if request.param == "folder":
        made = folder_place(tmp_path)
    else:
        stores = pytest.importorskip("obstore.store", reason="object storage needs the extra 'remote'")
        made = object_place(tmp_path, stores.MemoryStore())
    yield made
    made.close()
