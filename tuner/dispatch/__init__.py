"""The live dispatcher: the central batch scheduler between stock clients and real servers."""
