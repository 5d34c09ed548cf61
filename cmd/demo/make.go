package main

import (
	"strings"

	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/env/install"
)

// The name of the template in the vCenter, the machine that is created from it, and the address of its guest.
const ubuntu, shop1, address = "ubuntu", "shop-1", "10.0.0.17"

// createShop is the command that creates the machine, without the name of the datastore.
const createShop = "sallyport create vm " + shop1 + " --vsphere-server vc-1 --template " + inventory + ubuntu +
	" --folder /DC0/vm --resource-pool /DC0/host/DC0_C0 --network /DC0/network/DC0_DVPG0 --cpu 2 --memory 4Gi --disk 2Gi" +
	" --user-data-secret shop-1 --datastore /DC0/datastore/"

func (s *show) make() {
	s.chapter("Create a machine from a template",
		"A Secret contains the user data for cloud-init in the guest. An administrator permits Sallyport to read Secrets in this namespace.")
	s.kubectl("create role cloud-init --verb=get --resource=secrets")
	s.kubectl("create rolebinding cloud-init --role=cloud-init --serviceaccount=" + install.Namespace + ":" + install.Release)
	s.kubectl("create secret generic shop-1 --from-literal=user-data=#cloud-config")
	s.tell("A datastore that team-a has no access to is denied. The message lists the allowed datastores:")
	s.denied(createShop+"gold", "", "DatastoreNotAllowed", "/DC0/datastore/LocalDS_0")
	s.kubectl(createShop+"LocalDS_0", "created")
	s.kubectl("wait svm/shop-1 --for=condition=Ready --timeout=2m")
	shop := s.madeFor(shop1)
	s.vcenter.SetGuest(shop, vcsim.Guest{Hostname: shop1, Address: address})
	s.kubectl("wait svm/shop-1 --for=jsonpath={.status.addresses[0]}=" + address + " --timeout=2m")
	s.kubectl("get svm shop-1 -o wide", "Running", address)
	s.tell("Adding processors requires a restart, because this template does not support adding them to a running machine:")
	s.kubectl(`patch svm shop-1 --type=merge --patch={"spec":{"cpu":4}}`)
	s.kubectl("wait svm/shop-1 --for=condition=RestartRequired --timeout=2m")
	s.kubectl("sallyport restart shop-1 --wait", "Completed, Succeeded")
	s.vCenterHas(shop, 4)
	s.tell("Deleting the VirtualMachine deletes the machine in the vCenter:")
	s.kubectl("delete svm shop-1 --timeout=2m")
	s.vCenterHas(shop, 0)
}

// madeFor returns the inventory path of the machine that was created for a VirtualMachine.
func (s *show) madeFor(name string) string {
	for _, path := range s.vcenter.Machines() {
		if strings.HasPrefix(path, inventory+team+"-"+name+"-") {
			return path
		}
	}
	s.fail("vCenter has no machine for %s", name)
	return ""
}

// vCenterHas prints and checks the number of processors of a machine, or that it does not exist.
func (s *show) vCenterHas(path string, processors int32) {
	there := s.vcenter.State(path).InstanceUUID != ""
	if !there {
		s.note("vCenter says: there is no machine at %s", path)
	} else {
		s.note("vCenter says: %s has %d processors", path, s.vcenter.Hardware(path).CPUs)
	}
	if there != (processors > 0) || there && s.vcenter.Hardware(path).CPUs != processors {
		s.fail("expected %d processors", processors)
	}
}
