//! client/proto
