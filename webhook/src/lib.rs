//! Admission: validates groups, stamps pods, refuses evictions of pods with people on them.
