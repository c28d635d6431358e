"""The algorithm DDTREE for stock SGLang, added from outside through its plugin entry point.

The only place that imports torch (besides ``builtin/train``) and SGLang; it needs nothing else of
this package. ``trees`` and ``acceptance`` are plain tensor functions without SGLang, ``knobs`` and
``signatures`` plain Python.
"""
