// Package catalog turns RegoPolicy objects into the set of policies that decide, and finds those that a request meets.
package catalog
