"""Holding back Python's cyclic garbage collector."""

import gc
import os
import threading
import weakref

import pytest

from objstore.collector import FULL_EVERY, paused, tidy


@pytest.fixture(autouse=True)
def on():
    gc.enable()
    yield
    gc.enable()


def test_it_is_off_within_and_on_again_behind():
    with paused():
        assert not gc.isenabled()
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


class Cycle:
    def __init__(self):
        self.me = self


def test_what_was_let_go_within_is_found_when_it_is_asked_to():
    with paused():
        gone = weakref.ref(Cycle())
        assert gone() is not None
        tidy()
        assert gone() is None


def test_now_and_then_it_looks_at_what_is_old_too():
    with paused():
        held = Cycle()
        gone = weakref.ref(held)
        tidy()  # it counts as old now
        del held
        for _ in range(FULL_EVERY):
            tidy()
        assert gone() is None


def test_outside_of_a_pause_there_is_nothing_to_tidy(monkeypatch):
    monkeypatch.setattr(gc, "collect", None)
    tidy()
    gc.disable()
    with paused():
        tidy()


def test_whoever_had_it_off_keeps_it_off():
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


def test_an_error_ends_the_pause():
    with pytest.raises(RuntimeError), paused():
        raise RuntimeError
    assert gc.isenabled()


def test_it_stays_off_as_long_as_any_thread_is_within():
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with paused():
            inside.set()
            go.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with paused():
        pass
    assert not gc.isenabled()
    go.set()
    thread.join()
    assert gc.isenabled()


def test_a_child_that_is_forked_within_has_it_on():
    with paused():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not gc.isenabled()
    assert gc.isenabled()
