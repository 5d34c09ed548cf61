// Package images has images imported on a control plane whose CDI and snapshot controller are played by the test.
package images
