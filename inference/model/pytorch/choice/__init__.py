"""The choice of the next token on a GPU.

sampler          choices from scores
sampler_loader   which sampler chooses on a device
inquiry          what a choice asks about rows of logits
scorer_loader    what answers it on a device: kernels, checked when a model is loaded, or torch's own operations
sorted_head      choices that need sorted tokens
draw_source      the random source of a candidate
"""
