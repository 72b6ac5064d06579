"""How large gateways must be for a training, and what its checkpoints cost: arithmetic, no more."""
