// Package undecodable leads an installed release through objects that were stored before a schema was bounded, or as nobody lists them:
// each costs itself only, and says so.
package undecodable
