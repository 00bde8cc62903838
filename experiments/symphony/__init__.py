"""Symphony: Optimized DNN Model Serving using Deferred Batch Scheduling. One file per table or figure."""
