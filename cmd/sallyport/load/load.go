// Package load finds the policies that a command works with.
package load

import (
	"fmt"
	"os"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// Policies reads a folder of policies, or the shipped ones if the folder is "".
func Policies(folder string) ([]v1alpha1.RegoPolicy, error) {
	if folder == "" {
		return policies.Shipped()
	}
	info, err := os.Stat(folder)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", folder)
	}
	if err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	loaded, err := policies.Load(os.DirFS(folder))
	if err != nil {
		return nil, fmt.Errorf("reading policies in %s: %w", folder, err)
	}
	return loaded, nil
}

// Set compiles the policies of a folder, or the shipped ones.
func Set(folder string) (*catalog.Set, error) {
	objects, err := Policies(folder)
	if err != nil {
		return nil, err
	}
	return catalog.Compile(objects)
}
