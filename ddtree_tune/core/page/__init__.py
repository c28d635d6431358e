"""The report as a page: what stands on it, decided from records, and its HTML.

``build`` says which sections there are, each section what it shows, ``charts`` how a chart is drawn,
``html`` how all of it becomes one file. Numbers come from the rest of core; nothing is computed in HTML.
"""
