"""One file a noun; each verb is one transaction: read rows, ask a rule, write rows."""
