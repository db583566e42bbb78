"""Consumer groups as pure rules: who is a member, what is assigned, which offsets are committed."""
