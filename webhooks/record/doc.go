// Package record writes each decision as a line of JSON, from which it can be replayed, and counts decisions.
package record
