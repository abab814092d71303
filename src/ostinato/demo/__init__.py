"""The demo: a photograph is denoised by tiled diffusion, as a plain loop, on a thread pool and as a replay."""


class DemoError(Exception):
    """What a user of the demo can put right; the text says how."""
