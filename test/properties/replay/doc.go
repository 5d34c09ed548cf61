// Package replay records a day of decisions, made by a real gate on facts from a real API server, and replays it: against the
// policies that made them, which must decide the same, and against a changed table, where exactly those must flip that the
// tables themselves tell.
package replay
