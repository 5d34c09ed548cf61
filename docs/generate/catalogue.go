package main

import (
	"path"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/policies/describe"
)

const cataloguePreface = `<!-- Written by docs/generate, from policies/: edit these, then run "make generate". -->

# The shipped policies

Every denial names its policy and reason: ` + "`[POLICY/Reason]`" + `. This page explains each reason and what to do. It describes the policies as
they are shipped; policies in a cluster may have been [edited](operating-policies.md#in-the-cluster), which ` + "`kubectl sallyport policies`" + ` shows. For your
own policies, ` + "[`sallyport policy docs`](cli.md#sallyport-policy-docs)" + ` writes such a page.

The HTTP codes are those of CREATE requests. Other requests are denied with 403, and so is a creation by ` + "`kubectl apply --server-side`" + `. All
other reasons mean that the [evaluation failed](policies.md#how-it-is-kept-from-failing-open).

`

// policyCatalogue is the page about the shipped policies: libraries, of which users see nothing, come last.
func policyCatalogue() (string, error) {
	shipped, err := policies.Shipped()
	if err != nil {
		return "", err
	}
	var asked, libraries []v1alpha1.RegoPolicy
	for _, policy := range shipped {
		if policy.Spec.Library {
			libraries = append(libraries, policy)
		} else {
			asked = append(asked, policy)
		}
	}
	page := &describe.Page{Preface: cataloguePreface, Modules: shippedModule}
	return page.Write(append(asked, libraries...))
}

// shippedModule is where a module of a shipped policy is, seen from docs: the package is the folder.
func shippedModule(policy *v1alpha1.RegoPolicy, module string) string {
	folder := strings.ReplaceAll(strings.TrimPrefix(policy.Spec.Package, "sallyport."), ".", "/")
	return path.Join("../policies", folder, module)
}
