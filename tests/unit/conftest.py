"""Unit tests may make programs and models without the functions of `ostinato.api`, which connect the layers."""

from ostinato.api import wire

wire()
