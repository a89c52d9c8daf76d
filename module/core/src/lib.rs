//! redlock-core
