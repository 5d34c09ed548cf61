// Package images holds no code but a test: it measures what images cost in a fleet of machines.
package images
