"""Every page of the seeded site: its name in pictures, and its address."""

from __future__ import annotations

PLACES = {
    "dashboard": "/",
    "recovery": "/recovery",
    "checkpoints": "/checkpoints",
    "checkpoint-list": "/checkpoints/list?run=llama-70b/pretrain-v3",
    "checkpoint": "/checkpoints/{checkpoint}",
    "checkpoint-delete": "/checkpoints/{checkpoint}/delete",
    "checkpoint-promote": "/checkpoints/{durable}/promote",
    "checkpoint-pin": "/checkpoints/{durable}/pin",
    "checkpoint-fate": "/checkpoints/{durable}/fate",
    "files": "/files?path=/checkpoints/llama-70b/pretrain-v3/step-46000",
    "file": "/files?path=/checkpoints/llama-70b/pretrain-v3/step-37000/__7_0.distcp",
    "queue": "/queue",
    "policies": "/policies",
    "policy": "/policy/pretrain-ladder",
    "policy-preview": "/policies/preview?version=2&name=pretrain-ladder&run=llama-70b/*"
    "&keep_newest=2",
    "policy-conflict": "/policies/preview?version=1&name=pretrain-ladder&run=llama-70b/*"
    "&keep_newest=4",
    "policy-new": "/policies/new",
    "policy-history": "/policy/pretrain-ladder/history",
    "policy-remove": "/policy/sft-best/remove",
    "policy-log": "/policies/log",
    "plan": "/policies/plan",
    "promotions": "/promotions",
    "promotion-demote": "/promotions/vit-l-finetune-best/demote",
    "trash": "/trash",
    "trash-remove": "/trash/empty",
    "trash-undelete": "/trash/{trash}/undelete",
    "trash-release": "/trash/{trash}/release",
    "exports": "/exports",
    "export": "/exports/edit?name=/datasets",
    "export-preview": "/exports/preview?version=1&name=/datasets&path=/checkpoints/datasets"
    "&clients=10.20.0.0/16 ro&squash=root",
    "export-remove": "/exports/remove?name=/datasets",
    "clients": "/clients",
    "jobs": "/jobs",
    "audit": "/audit",
    "settings": "/settings",
    "tokens": "/settings/tokens",
    "error": "/checkpoints/4711",
    "login": "/login",
}
STATUS = {"error": 404, "policy-conflict": 412}
"""The status of a page, if it is not 200."""
