// Exists so that a precompiled header is built once and shared by every target that asks for it.
