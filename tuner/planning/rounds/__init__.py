"""Rounds of an inference scheduler on Blox: jobs from a replay log are allotted, admitted and placed."""
