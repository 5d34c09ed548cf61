// Package pods has the program that ships run machines that are Pods: with an agent that makes machines of them, and from images that are
// imported. Sallyport is installed once for all but TestImages, which begins without the kinds that images need.
package pods
