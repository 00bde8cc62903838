"""The paper's network: it predicts the cost of a configuration beside one that was measured."""
