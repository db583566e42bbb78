"""The transaction coordinator as pure rules: transactional ids, their producers, and what becomes of a transaction."""
