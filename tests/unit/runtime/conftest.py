"""Machines of several sizes; more processors than cores among them."""

import pytest

import ostinato as ost


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda cpus: f"{cpus}cpus")
def machine(request):
    with ost.Machine(cpus=request.param, gpus=0) as machine:
        yield machine
