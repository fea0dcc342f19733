//! Sizes, drains and heals groups of servers and proxies from what agents report.
