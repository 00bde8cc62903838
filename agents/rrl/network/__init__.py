"""The estimation function of the table form: a network infers what neighbours of a configuration cost.

``estimator`` observes and estimates, ``network`` is the perceptron as plain arrays, ``ftrl`` its optimizer.
Only training needs torch, which is imported when it begins.
"""
