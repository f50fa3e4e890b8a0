"""`dibs top`: the full-screen view. `application`, `modals` and `widgets` use Textual; the rest needs no terminal."""
