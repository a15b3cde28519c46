"""How much faster the patterns could make a model, whoever chooses among them: search by measurement."""
