//! Rows of documents, what is in force after them, and what is said about them.
