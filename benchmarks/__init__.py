"""How fast dibs is, beside the tools people use today. Run by `scripts/bench`; read `docs/performance.md` first."""
